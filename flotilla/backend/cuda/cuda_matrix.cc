#include "flotilla/backend/cuda/cuda_matrix.h"

#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device_memory.h"
#include "flotilla/backend/cuda/host_upload.h"

namespace flotilla::backend::cuda {
namespace {

using tensor::DType;

Result<std::shared_ptr<tensor::Buffer>> copy_to_card(const Tensor& host, HostUpload& upload) {
  FLOTILLA_TRY(auto buffer, make_device_buffer(host.num_bytes()));
  upload.copy(buffer->data(), host.bytes(), host.num_bytes());
  return buffer;
}

Error unsupported(const std::string& what) {
  return {ErrorCode::kUnsupported, "not supported on the card: " + what};
}

Status check_format(const StoredMatrix& m) {
  const bool dense = m.format == WeightFormat::kF32 || m.format == WeightFormat::kF16 ||
                     m.format == WeightFormat::kBF16;
  if (dense) return ok_status();
  if (m.group_size <= 0 || m.k % m.group_size != 0)
    return unsupported("rows that are not whole groups");
  if (m.format == WeightFormat::kAffine) {
    if (m.bits < 2 || m.bits > 8 || m.bits == 7)
      return unsupported("affine codes of " + std::to_string(m.bits) + " bits");
    if (m.k * m.bits % 32 != 0) return unsupported("rows that do not end at a 32-bit word");
    const DType type = m.scales.dtype();
    if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16)
      return unsupported("scales of this type");
    if (m.biases.empty() || m.biases.dtype() != type) return unsupported("biases of another type");
  }
  return ok_status();
}

}  // namespace

CudaMatrix::CudaMatrix(const StoredMatrix& stored, std::shared_ptr<tensor::Buffer> codes,
                       std::shared_ptr<tensor::Buffer> scales,
                       std::shared_ptr<tensor::Buffer> biases)
    : Matrix(stored.n, stored.k),
      codes_(std::move(codes)),
      scales_(std::move(scales)),
      biases_(std::move(biases)),
      stored_(stored) {
  if (!stored.scales.empty()) scale_type_ = stored.scales.dtype();
  stored_.weight = stored_.scales = stored_.biases = Tensor();
}

std::size_t CudaMatrix::resident_bytes() const {
  std::size_t total = 0;
  for (const auto* part : {&packed_, &codes_, &scales_, &biases_}) {
    if (*part != nullptr) total += (*part)->size();
  }
  return total;
}

namespace {

ScaleKind scale_kind(const CudaMatrix& m) {
  if (m.scales() == nullptr) return ScaleKind::kNone;
  if (m.stored().format == WeightFormat::kNvfp4) return ScaleKind::kE4M3;
  if (m.stored().format != WeightFormat::kAffine) return ScaleKind::kE8M0;
  return m.scale_type() == DType::kF32   ? ScaleKind::kF32
         : m.scale_type() == DType::kF16 ? ScaleKind::kF16
                                         : ScaleKind::kBF16;
}

CodeKind code_kind(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return CodeKind::kF32;
    case WeightFormat::kF16:
      return CodeKind::kF16;
    case WeightFormat::kBF16:
      return CodeKind::kBF16;
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return CodeKind::kE2M1;
    case WeightFormat::kMxfp8:
      return CodeKind::kE4M3;
    case WeightFormat::kAffine:
      break;
  }
  return CodeKind::kAffine;
}

}  // namespace

GenericMatrix generic_matrix(const CudaMatrix& m) {
  const auto bytes = [](const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); };
  return {.codes = bytes(m.codes()),
          .scales = bytes(m.scales()),
          .biases = bytes(m.biases()),
          .code = code_kind(m.stored().format),
          .scale = scale_kind(m),
          .bits = m.stored().bits,
          .group = std::max(1, m.stored().group_size),
          .n = static_cast<int>(m.n()),
          .k = static_cast<int>(m.k())};
}

std::optional<BlockFormat> block_format(WeightFormat format, int bits, int group_size,
                                        DType scale_type, std::int64_t k) {
  if (k % kGroup != 0) return std::nullopt;
  switch (format) {
    case WeightFormat::kBF16:
      return BlockFormat::kDense;
    case WeightFormat::kMxfp4:
      return group_size == 32 ? std::optional(BlockFormat::kE2M1) : std::nullopt;
    case WeightFormat::kMxfp8:
      return group_size == 32 ? std::optional(BlockFormat::kE4M3) : std::nullopt;
    case WeightFormat::kAffine:
      break;
    default:
      return std::nullopt;
  }
  const bool fine = group_size == 32;
  if (scale_type != DType::kBF16 || (!fine && group_size != 64 && group_size != 128))
    return std::nullopt;
  if (bits == 4) return fine ? BlockFormat::kAffine4Fine : BlockFormat::kAffine4;
  if (bits == 8) return fine ? BlockFormat::kAffine8Fine : BlockFormat::kAffine8;
  return std::nullopt;
}

std::size_t packed_bytes(BlockFormat format, std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>((n + kRows - 1) / kRows) * static_cast<std::size_t>(k / kGroup) *
         static_cast<std::size_t>(block_bytes(format));
}

namespace {

// The parts of a stored matrix on the card.
struct Parts {
  std::shared_ptr<tensor::Buffer> codes, scales, biases;
};

Result<Parts> copy_parts(const StoredMatrix& stored, HostUpload& upload) {
  Parts parts;
  FLOTILLA_TRY(parts.codes, copy_to_card(stored.weight, upload));
  if (!stored.scales.empty()) {
    FLOTILLA_TRY(parts.scales, copy_to_card(stored.scales, upload));
  }
  if (!stored.biases.empty()) {
    FLOTILLA_TRY(parts.biases, copy_to_card(stored.biases, upload));
  }
  return parts;
}

std::optional<BlockFormat> format_of(const StoredMatrix& m) {
  return block_format(m.format, m.bits, m.group_size,
                      m.scales.empty() ? DType::kF32 : m.scales.dtype(), m.k);
}

// Runs repack(packed, flag). Null when a scale is out of range.
template <class Repack>
Result<std::shared_ptr<tensor::Buffer>> pack(BlockFormat format, std::int64_t n, std::int64_t k,
                                             cudaStream_t stream, Repack&& repack) {
  FLOTILLA_TRY(auto packed, make_device_buffer(packed_bytes(format, n, k)));
  FLOTILLA_TRY(auto flag, make_device_buffer(sizeof(int)));
  check_cuda(cudaMemsetAsync(flag->data(), 0, sizeof(int), stream), "packing weights");
  check_cuda(
      repack(reinterpret_cast<std::uint8_t*>(packed->data()), reinterpret_cast<int*>(flag->data())),
      "packing weights");
  int out_of_range = 0;
  check_cuda(
      cudaMemcpyAsync(&out_of_range, flag->data(), sizeof(int), cudaMemcpyDeviceToHost, stream),
      "packing weights");
  check_cuda(cudaStreamSynchronize(stream), "packing weights");
  if (out_of_range != 0) packed.reset();
  return packed;
}

}  // namespace

Result<std::unique_ptr<Matrix>> make_cuda_matrix(const StoredMatrix& stored, HostUpload& upload,
                                                 void* stream_handle) {
  auto* stream = static_cast<cudaStream_t>(stream_handle);
  FLOTILLA_TRY_STATUS(check_format(stored));
  FLOTILLA_TRY(Parts parts, copy_parts(stored, upload));
  const std::optional<BlockFormat> format = format_of(stored);
  auto matrix = std::make_unique<CudaMatrix>(stored, std::move(parts.codes),
                                             std::move(parts.scales), std::move(parts.biases));
  if (!format) return std::unique_ptr<Matrix>(std::move(matrix));
  FLOTILLA_TRY(auto packed,
               pack(*format, stored.n, stored.k, stream, [&](std::uint8_t* to, int* out_of_range) {
                 return pack_blocks(*format, generic_matrix(*matrix), nullptr, to, out_of_range,
                                    stream);
               }));
  if (!packed) return std::unique_ptr<Matrix>(std::move(matrix));
  return std::unique_ptr<Matrix>(
      std::make_unique<CudaMatrix>(stored.n, stored.k, *format, std::move(packed)));
}

Result<std::unique_ptr<Matrix>> make_gated_matrix(const StoredMatrix& gate, const StoredMatrix& up,
                                                  HostUpload& upload, void* stream_handle) {
  auto* stream = static_cast<cudaStream_t>(stream_handle);
  const std::optional<BlockFormat> format = format_of(gate);
  const bool alike = format && format_of(up) == format && gate.group_size == up.group_size;
  if (!alike) return std::unique_ptr<Matrix>();
  FLOTILLA_TRY_STATUS(check_format(gate));
  FLOTILLA_TRY_STATUS(check_format(up));
  FLOTILLA_TRY(Parts first, copy_parts(gate, upload));
  FLOTILLA_TRY(Parts second, copy_parts(up, upload));
  const CudaMatrix of_gate(gate, std::move(first.codes), std::move(first.scales),
                           std::move(first.biases));
  const CudaMatrix of_up(up, std::move(second.codes), std::move(second.scales),
                         std::move(second.biases));
  FLOTILLA_TRY(auto packed,
               pack(*format, 2 * gate.n, gate.k, stream, [&](std::uint8_t* to, int* out_of_range) {
                 const GenericMatrix other = generic_matrix(of_up);
                 return pack_blocks(*format, generic_matrix(of_gate), &other, to, out_of_range,
                                    stream);
               }));
  if (!packed) return std::unique_ptr<Matrix>();
  return std::unique_ptr<Matrix>(
      std::make_unique<CudaMatrix>(2 * gate.n, gate.k, *format, std::move(packed)));
}

}  // namespace flotilla::backend::cuda
