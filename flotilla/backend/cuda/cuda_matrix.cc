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

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>((n + kRows - 1) / kRows) * static_cast<std::size_t>(k / kGroup) *
         kBlockBytes;
}

namespace {

// The parts of a stored matrix on the card.
struct Parts {
  std::shared_ptr<tensor::Buffer> codes, scales, biases;

  StoredRows rows() const {
    return {reinterpret_cast<const std::uint32_t*>(codes->data()),
            reinterpret_cast<const bf16*>(scales->data()),
            reinterpret_cast<const bf16*>(biases->data())};
  }
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

bool is_fast(const StoredMatrix& m) {
  return m.format == WeightFormat::kAffine && m.bits == 4 && m.group_size == kGroup &&
         m.scales.dtype() == DType::kBF16;
}

// Runs repack(packed, flag). Null when a scale is out of range.
template <class Repack>
Result<std::shared_ptr<tensor::Buffer>> pack(std::int64_t n, std::int64_t k, cudaStream_t stream,
                                             Repack&& repack) {
  FLOTILLA_TRY(auto packed, make_device_buffer(packed_bytes(n, k)));
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
  if (is_fast(stored)) {
    FLOTILLA_TRY(auto packed,
                 pack(stored.n, stored.k, stream, [&](std::uint8_t* to, int* out_of_range) {
                   return repack(parts.rows(), to, static_cast<int>(stored.n),
                                 static_cast<int>(stored.k), out_of_range, stream);
                 }));
    if (packed)
      return std::unique_ptr<Matrix>(
          std::make_unique<CudaMatrix>(stored.n, stored.k, std::move(packed)));
  }
  return std::unique_ptr<Matrix>(std::make_unique<CudaMatrix>(
      stored, std::move(parts.codes), std::move(parts.scales), std::move(parts.biases)));
}

Result<std::unique_ptr<Matrix>> make_gated_matrix(const StoredMatrix& gate, const StoredMatrix& up,
                                                  HostUpload& upload, void* stream_handle) {
  auto* stream = static_cast<cudaStream_t>(stream_handle);
  if (!is_fast(gate) || !is_fast(up)) return std::unique_ptr<Matrix>();
  FLOTILLA_TRY_STATUS(check_format(gate));
  FLOTILLA_TRY_STATUS(check_format(up));
  FLOTILLA_TRY(const Parts first, copy_parts(gate, upload));
  FLOTILLA_TRY(const Parts second, copy_parts(up, upload));
  FLOTILLA_TRY(auto packed,
               pack(2 * gate.n, gate.k, stream, [&](std::uint8_t* to, int* out_of_range) {
                 return repack_in_turns(first.rows(), second.rows(), to, static_cast<int>(gate.n),
                                        static_cast<int>(gate.k), out_of_range, stream);
               }));
  if (!packed) return std::unique_ptr<Matrix>();
  return std::unique_ptr<Matrix>(
      std::make_unique<CudaMatrix>(2 * gate.n, gate.k, std::move(packed)));
}

}  // namespace flotilla::backend::cuda
