#include "flotilla/backend/fixed_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace flotilla::backend {
namespace {

using tensor::DType;

Tensor host_tensor(const Shape& shape, DType dtype) {
  const auto bytes = static_cast<std::size_t>(shape.num_elements()) * tensor::dtype_bytes(dtype);
  return Tensor(tensor::make_host_buffer(bytes), 0, shape, dtype);
}

void put(const Tensor& t, std::size_t i, float v) {
  switch (t.dtype()) {
    case DType::kF32:
      t.data<float>()[i] = v;
      return;
    case DType::kF16:
      t.data<std::uint16_t>()[i] = tensor::f32_to_f16(v);
      return;
    default:
      t.data<std::uint16_t>()[i] = tensor::f32_to_bf16(v);
      return;
  }
}

DType dense_type(WeightFormat format) {
  return format == WeightFormat::kF32   ? DType::kF32
         : format == WeightFormat::kF16 ? DType::kF16
                                        : DType::kBF16;
}

}  // namespace

std::uint64_t FixedRandom::next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float FixedRandom::normal() {
  // The sum of three uniform numbers in [-1, 1) has variance 1.
  float sum = 0.0f;
  const std::uint64_t bits = next();
  for (int i = 0; i < 3; ++i) {
    sum += static_cast<float>((bits >> (21 * i)) & 0x1fffffu) * 0x1p-20f - 1.0f;
  }
  return sum;
}

std::uint32_t FixedRandom::below(std::uint32_t limit) {
  return static_cast<std::uint32_t>((next() >> 32) * limit >> 32);
}

Tensor fixed_activations(const Shape& shape, std::uint64_t seed) {
  FixedRandom random(seed);
  Tensor t = host_tensor(shape, DType::kF32);
  const auto count = static_cast<std::size_t>(shape.num_elements());
  for (std::size_t i = 0; i < count; ++i) {
    t.data<float>()[i] = random.normal() * (i % 128 == 5 ? 20.0f : 1.0f);
  }
  return t;
}

std::vector<MatrixKind> all_matrix_kinds() {
  std::vector<MatrixKind> kinds = {
      {WeightFormat::kF32}, {WeightFormat::kF16}, {WeightFormat::kBF16}};
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      kinds.push_back({WeightFormat::kAffine, bits, group, DType::kBF16});
    }
  }
  kinds.push_back({WeightFormat::kAffine, 4, 64, DType::kF16});
  kinds.push_back({WeightFormat::kAffine, 4, 64, DType::kF32});
  kinds.push_back({WeightFormat::kAffine, 8, 32, DType::kF16});
  kinds.push_back({WeightFormat::kMxfp4, 4, 32});
  kinds.push_back({WeightFormat::kMxfp8, 8, 32});
  kinds.push_back({WeightFormat::kNvfp4, 4, 16});
  return kinds;
}

std::string matrix_kind_name(const MatrixKind& kind) {
  switch (kind.format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kBF16:
      return "bf16";
    case WeightFormat::kMxfp4:
      return "mxfp4";
    case WeightFormat::kMxfp8:
      return "mxfp8";
    case WeightFormat::kNvfp4:
      return "nvfp4";
    case WeightFormat::kAffine:
      break;
  }
  return "affine" + std::to_string(kind.bits) + "g" + std::to_string(kind.group_size) + "_" +
         std::string(tensor::dtype_name(kind.scale_type));
}

StoredMatrix fixed_matrix(const MatrixKind& kind, std::int64_t n, std::int64_t k,
                          std::uint64_t seed) {
  FixedRandom random(seed);
  StoredMatrix m{
      .format = kind.format, .bits = kind.bits, .group_size = kind.group_size, .n = n, .k = k};
  const float unit = 1.0f / std::sqrt(static_cast<float>(k));
  if (kind.group_size == 0) {
    m.weight = host_tensor({n, k}, dense_type(kind.format));
    for (std::int64_t i = 0; i < n * k; ++i)
      put(m.weight, static_cast<std::size_t>(i), random.normal() * unit);
    return m;
  }
  m.weight = host_tensor({n, k * kind.bits / 32}, DType::kU32);
  for (std::size_t i = 0; i + 4 <= m.weight.num_bytes(); i += 4) {
    auto word = static_cast<std::uint32_t>(random.next());
    // 0x7f and 0xff are NaN in E4M3; clearing the lowest bit of each byte avoids both.
    if (kind.format == WeightFormat::kMxfp8) word &= 0xfefefefeu;
    std::memcpy(m.weight.bytes() + i, &word, 4);
  }
  const std::int64_t groups = k / kind.group_size;
  const auto count = static_cast<std::size_t>(n * groups);
  if (kind.format == WeightFormat::kAffine) {
    m.scales = host_tensor({n, groups}, kind.scale_type);
    m.biases = host_tensor({n, groups}, kind.scale_type);
    const auto top = static_cast<float>((1 << kind.bits) - 1);
    for (std::size_t i = 0; i < count; ++i) {
      const float sign = random.below(2) == 0 ? 1.0f : -1.0f;
      const float scale = sign * 4.0f / top * unit * (1.0f + 0.3f * std::fabs(random.normal()));
      put(m.scales, i, scale);
      put(m.biases, i, -0.5f * top * scale * (1.0f + 0.1f * random.normal()));
    }
    return m;
  }
  m.scales = host_tensor({n, groups}, DType::kU8);
  const bool is_nv = kind.format == WeightFormat::kNvfp4;
  const std::uint32_t lowest = is_nv ? 0x08 : kind.format == WeightFormat::kMxfp4 ? 119 : 112;
  for (std::size_t i = 0; i < count; ++i) {
    m.scales.data<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(lowest + random.below(is_nv ? 0x20 : 4));
  }
  return m;
}

FixedKv::FixedKv(const KvGeometry& geometry, int first_block, int num_blocks, std::uint64_t seed)
    : first_block_(first_block) {
  const auto floats = static_cast<std::int64_t>(tensor::kv_page_floats(geometry));
  storage_ = host_tensor({num_blocks, floats}, DType::kF32);
  FixedRandom random(seed);
  const std::int64_t total = num_blocks * floats;
  for (std::int64_t i = 0; i < total; ++i) storage_.data<float>()[i] = random.normal();
  for (int b = 0; b < num_blocks; ++b) pages_.push_back(storage_.data<float>() + b * floats);
}

}  // namespace flotilla::backend
