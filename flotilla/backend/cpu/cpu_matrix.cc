#include "flotilla/backend/cpu/cpu_matrix.h"

#include <algorithm>
#include <limits>

namespace flotilla::backend {
namespace {

using tensor::DType;

Error invalid(const StoredMatrix& m, const std::string& what) {
  return {ErrorCode::kInvalidArgument, "matrix [" + std::to_string(m.n) + ", " +
                                           std::to_string(m.k) + "] in " + format_name(m) + ": " +
                                           what};
}
Error unsupported(const StoredMatrix& m, const std::string& what) {
  return {ErrorCode::kUnsupported, format_name(m) + " is not supported on the CPU: " + what};
}

struct Layout {
  int bits = 0;
  int group = 0;
  bool dense = false;
  DType weight = DType::kU32;
};

Result<Layout> layout_of(const StoredMatrix& m) {
  switch (m.format) {
    case WeightFormat::kF32:
      return Layout{32, 64, true, DType::kF32};
    case WeightFormat::kF16:
      return Layout{16, 64, true, DType::kF16};
    case WeightFormat::kBF16:
      return Layout{16, 64, true, DType::kBF16};
    case WeightFormat::kAffine:
      if (m.bits < 2 || m.bits > 8 || m.bits == 7)
        return unsupported(m, "bits must be 2, 3, 4, 5, 6 or 8");
      if (m.group_size != 32 && m.group_size != 64 && m.group_size != 128) {
        return unsupported(m, "the group size must be 32, 64 or 128");
      }
      return Layout{m.bits, m.group_size};
    case WeightFormat::kMxfp4:
    case WeightFormat::kMxfp8:
      if (m.group_size != 32) return unsupported(m, "the group size must be 32");
      return Layout{m.format == WeightFormat::kMxfp4 ? 4 : 8, 32};
    case WeightFormat::kNvfp4:
      if (m.group_size != 16) return unsupported(m, "the group size must be 16");
      return Layout{4, 16};
  }
  return unsupported(m, "unknown format");
}

Status check_shape(const StoredMatrix& m, const Tensor& t, std::string_view name,
                   std::int64_t columns) {
  if (!t.empty() && t.shape() == Shape{m.n, columns}) return ok_status();
  return invalid(m, std::string(name) + " has shape " +
                        (t.empty() ? "nothing" : t.shape().to_string()) + ", expected " +
                        Shape{m.n, columns}.to_string());
}

Status check_scales(const StoredMatrix& m, const Layout& l) {
  if (m.k % l.group != 0) {
    return invalid(m, "the row length is not a multiple of the group size");
  }
  FLOTILLA_TRY_STATUS(check_shape(m, m.scales, "scales", m.k / l.group));
  const DType type = m.scales.dtype();
  if (m.format != WeightFormat::kAffine) {
    const bool is_byte =
        tensor::dtype_bytes(type) == 1 && type != DType::kBool && type != DType::kI8;
    if (!is_byte) return invalid(m, "scales must be bytes");
    return ok_status();
  }
  FLOTILLA_TRY_STATUS(check_shape(m, m.biases, "biases", m.k / l.group));
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16) {
    return invalid(m, "scales must be F32, F16 or BF16");
  }
  if (m.biases.dtype() != type) return invalid(m, "biases differ from scales in type");
  return ok_status();
}

}  // namespace

std::string format_name(const StoredMatrix& m) {
  switch (m.format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kBF16:
      return "bf16";
    case WeightFormat::kAffine:
      return "affine " + std::to_string(m.bits) + "-bit group " + std::to_string(m.group_size);
    case WeightFormat::kMxfp4:
      return "mxfp4 group " + std::to_string(m.group_size);
    case WeightFormat::kMxfp8:
      return "mxfp8 group " + std::to_string(m.group_size);
    case WeightFormat::kNvfp4:
      return "nvfp4 group " + std::to_string(m.group_size);
  }
  return "unknown format";
}

CpuMatrix::CpuMatrix(const StoredMatrix& stored, const WeightView& view)
    : Matrix(stored.n, stored.k), stored_(stored), view_(view) {}

Result<std::unique_ptr<Matrix>> CpuMatrix::make(const StoredMatrix& stored, bool pack,
                                                const CpuKernels& kernels, ThreadPool& pool) {
  constexpr std::int64_t kMaxDim = std::numeric_limits<int>::max() - 1024;
  if (stored.n < 1 || stored.k < 1 || stored.n > kMaxDim || stored.k > kMaxDim) {
    return invalid(stored, "dimensions must be in [1, 2^31)");
  }
  FLOTILLA_TRY(const Layout l, layout_of(stored));
  const std::int64_t row_bits = stored.k * l.bits;
  if (l.dense) {
    FLOTILLA_TRY_STATUS(check_shape(stored, stored.weight, "weight", stored.k));
  } else {
    FLOTILLA_TRY_STATUS(check_scales(stored, l));
    if (row_bits % 32 != 0) return invalid(stored, "rows do not end at a 32-bit word");
    FLOTILLA_TRY_STATUS(check_shape(stored, stored.weight, "weight", row_bits / 32));
  }
  if (stored.weight.dtype() != l.weight) {
    return invalid(stored, "weight has type " +
                               std::string(tensor::dtype_name(stored.weight.dtype())) +
                               ", expected " + std::string(tensor::dtype_name(l.weight)));
  }
  WeightView v{.format = stored.format,
               .bits = l.bits,
               .group = l.group,
               .n = static_cast<int>(stored.n),
               .k = static_cast<int>(stored.k),
               .weight = stored.weight.bytes(),
               .row_bytes = static_cast<std::size_t>(row_bits / 8)};
  if (!l.dense) {
    v.scales = stored.scales.bytes();
    v.biases = stored.biases.bytes();
    v.scale_type = stored.scales.dtype();
    v.scale_row_bytes =
        static_cast<std::size_t>(stored.k / l.group) * tensor::dtype_bytes(v.scale_type);
  }
  std::unique_ptr<CpuMatrix> matrix(new CpuMatrix(stored, v));
  if (pack && can_pack(v)) {
    matrix->packed_ = tensor::make_host_buffer(packed_bytes(v));
    std::byte* out = matrix->packed_->data();
    const int tiles = num_tiles(v);
    constexpr int kTilesPerItem = 8;
    pool.run((tiles + kTilesPerItem - 1) / kTilesPerItem, [&](int i, int) {
      kernels.pack(v, out, i * kTilesPerItem, std::min(tiles, (i + 1) * kTilesPerItem));
    });
    v.packed = out;
    v.weight = v.scales = v.biases = nullptr;
    matrix->view_ = v;
    matrix->stored_.weight = matrix->stored_.scales = matrix->stored_.biases = Tensor();
  }
  return std::unique_ptr<Matrix>(std::move(matrix));
}

std::size_t CpuMatrix::resident_bytes() const {
  if (packed_ != nullptr) return packed_->size();
  std::size_t total = 0;
  for (const Tensor* t : {&stored_.weight, &stored_.scales, &stored_.biases}) {
    if (!t->empty()) total += t->num_bytes();
  }
  return total;
}

}  // namespace flotilla::backend
