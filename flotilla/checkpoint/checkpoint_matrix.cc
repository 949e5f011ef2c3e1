// The part of Checkpoint that turns tensors into matrices and vectors: shapes first, metadata as a
// check.
#include <algorithm>
#include <array>
#include <cstring>

#include "flotilla/checkpoint/checkpoint.h"

namespace flotilla::checkpoint {
using backend::StoredMatrix;
using backend::WeightFormat;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
namespace {

std::optional<WeightFormat> float_format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return WeightFormat::kF32;
    case DType::kF16:
      return WeightFormat::kF16;
    case DType::kBF16:
      return WeightFormat::kBF16;
    default:
      return std::nullopt;
  }
}

std::string type_and_shape(const Tensor& t) {
  return std::string(tensor::dtype_name(t.dtype())) + " " + t.shape().to_string();
}

// The coding that the shapes imply for rows of `k` elements; nullopt when none fits.
std::optional<Quantization> coding_from_shapes(bool affine, std::int64_t word_cols,
                                               std::int64_t scale_cols, std::int64_t k) {
  if (scale_cols <= 0 || k % scale_cols != 0 || 32 * word_cols % k != 0) return std::nullopt;
  const std::int64_t group = k / scale_cols;
  const std::int64_t bits = 32 * word_cols / k;
  if (affine) {
    constexpr std::array<std::int64_t, 6> kBits = {2, 3, 4, 5, 6, 8};
    if (std::find(kBits.begin(), kBits.end(), bits) == kBits.end()) return std::nullopt;
    if (group != 32 && group != 64 && group != 128) return std::nullopt;
    return Quantization{WeightFormat::kAffine, static_cast<int>(bits), static_cast<int>(group)};
  }
  if (bits == 4 && group == 32) return Quantization{WeightFormat::kMxfp4, 4, 32};
  if (bits == 8 && group == 32) return Quantization{WeightFormat::kMxfp8, 8, 32};
  if (bits == 4 && group == 16) return Quantization{WeightFormat::kNvfp4, 4, 16};
  return std::nullopt;
}

template <class Convert>
void convert_u16(const Tensor& from, float* to, Convert convert) {
  const auto* source = from.data<std::uint16_t>();
  const std::int64_t n = from.shape().num_elements();
  for (std::int64_t i = 0; i < n; ++i) to[i] = convert(source[i]);
}

}  // namespace

bool Checkpoint::has_matrix(std::string_view module) const {
  return contains(std::string(module) + ".weight");
}

Result<Tensor> Checkpoint::vector(std::string_view name, const Shape& shape) const {
  FLOTILLA_TRY(const Tensor stored, tensor(name));
  if (!(stored.shape() == shape)) {
    return Error{ErrorCode::kDataLoss, describe(name) + " has the shape " +
                                           stored.shape().to_string() +
                                           ", the configuration needs " + shape.to_string()};
  }
  const std::size_t bytes = static_cast<std::size_t>(shape.num_elements()) * sizeof(float);
  const Tensor out(tensor::make_host_buffer(bytes), 0, shape, DType::kF32);
  switch (stored.dtype()) {
    case DType::kF32:
      if (bytes > 0) std::memcpy(out.bytes(), stored.bytes(), bytes);
      break;
    case DType::kF16:
      convert_u16(stored, out.data<float>(), tensor::f16_to_f32);
      break;
    case DType::kBF16:
      convert_u16(stored, out.data<float>(), tensor::bf16_to_f32);
      break;
    default:
      return Error{ErrorCode::kUnsupported, describe(name) + " is " +
                                                std::string(tensor::dtype_name(stored.dtype())) +
                                                ", only F32, F16 and BF16 are supported here"};
  }
  return out;
}

Result<StoredMatrix> Checkpoint::matrix(std::string_view module,
                                        std::vector<std::string>* notes) const {
  const std::string base(module);
  FLOTILLA_TRY(const Tensor weight, tensor(base + ".weight"));
  if (weight.shape().rank() != 2) {
    return Error{ErrorCode::kDataLoss, describe(base + ".weight") + " has the shape " +
                                           weight.shape().to_string() + ", not two dimensions"};
  }
  if (!contains(base + ".scales")) return matrix(module, weight.dim(0), weight.dim(1), notes);
  FLOTILLA_TRY(const Tensor scales, tensor(base + ".scales"));
  const std::optional<Quantization> claimed = quantization_.lookup(module);
  if (!claimed || scales.shape().rank() != 2) {
    return Error{ErrorCode::kDataLoss, describe(base + ".scales") + " has the shape " +
                                           scales.shape().to_string() +
                                           ", and config.json does not say how it is quantised"};
  }
  return matrix(module, weight.dim(0), scales.dim(1) * claimed->group_size, notes);
}

Result<StoredMatrix> Checkpoint::matrix(std::string_view module, std::int64_t n, std::int64_t k,
                                        std::vector<std::string>* notes) const {
  const std::string base(module);
  const std::string wanted = "[" + std::to_string(n) + ", " + std::to_string(k) + "]";
  StoredMatrix out;
  out.n = n;
  out.k = k;
  FLOTILLA_TRY(out.weight, tensor(base + ".weight"));
  const std::string place = describe(base + ".weight");
  const std::optional<Quantization> claimed = quantization_.lookup(module);

  if (!contains(base + ".scales")) {
    const std::optional<WeightFormat> format = float_format(out.weight.dtype());
    if (!format) {
      const bool packed = out.weight.dtype() == DType::kU32;
      return Error{ErrorCode::kDataLoss,
                   place + " is " + type_and_shape(out.weight) +
                       (packed ? ", packed, but '" + base + ".scales' is missing"
                               : ", only F32, F16, BF16 and packed U32 are supported")};
    }
    if (!(out.weight.shape() == Shape{n, k})) {
      return Error{ErrorCode::kDataLoss, place + " has the shape " +
                                             out.weight.shape().to_string() +
                                             ", the configuration needs " + wanted};
    }
    out.format = *format;
    return out;
  }

  FLOTILLA_TRY(out.scales, tensor(base + ".scales"));
  const bool affine = contains(base + ".biases");
  if (affine) {
    FLOTILLA_TRY(out.biases, tensor(base + ".biases"));
    if (!(out.biases.shape() == out.scales.shape()) || out.biases.dtype() != out.scales.dtype()) {
      return Error{ErrorCode::kDataLoss, describe(base + ".biases") + " is " +
                                             type_and_shape(out.biases) + ", but the scales are " +
                                             type_and_shape(out.scales)};
    }
  }
  if (out.weight.dtype() != DType::kU32 || out.weight.shape().rank() != 2 ||
      out.scales.shape().rank() != 2 || out.weight.dim(0) != n || out.scales.dim(0) != n) {
    return Error{ErrorCode::kDataLoss, place + " is " + type_and_shape(out.weight) +
                                           " with scales " + type_and_shape(out.scales) +
                                           ", the configuration needs packed U32 of " + wanted};
  }
  const bool good_scales =
      affine ? float_format(out.scales.dtype()).has_value() : out.scales.dtype() == DType::kU8;
  if (!good_scales) {
    return Error{
        ErrorCode::kDataLoss,
        describe(base + ".scales") + " is " + type_and_shape(out.scales) +
            (affine ? ", affine scales are F32, F16 or BF16" : ", scales without biases are U8")};
  }
  const std::optional<Quantization> actual =
      coding_from_shapes(affine, out.weight.dim(1), out.scales.dim(1), k);
  if (!actual) {
    return Error{ErrorCode::kDataLoss, place + " is " + type_and_shape(out.weight) +
                                           " with scales " + type_and_shape(out.scales) +
                                           ": no known coding of " + wanted};
  }
  if (notes != nullptr && claimed != actual) {
    notes->push_back(place + " is " + to_string(*actual) + " by its shape, config.json says " +
                     (claimed ? to_string(*claimed) : std::string("not quantised")) +
                     ": the shape is used");
  }
  out.format = actual->format;
  out.bits = actual->bits;
  out.group_size = actual->group_size;
  return out;
}

}  // namespace flotilla::checkpoint
