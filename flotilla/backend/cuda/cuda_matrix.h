// A matrix on the card: packed for the tensor cores, or as the checkpoint stores it.
#pragma once

#include <memory>

#include "flotilla/backend/backend.h"

namespace flotilla::backend::cuda {

class HostUpload;

class CudaMatrix final : public Matrix {
 public:
  CudaMatrix(std::int64_t n, std::int64_t k, std::shared_ptr<tensor::Buffer> packed)
      : Matrix(n, k), packed_(std::move(packed)) {}
  CudaMatrix(const StoredMatrix& stored, std::shared_ptr<tensor::Buffer> codes,
             std::shared_ptr<tensor::Buffer> scales, std::shared_ptr<tensor::Buffer> biases);

  std::size_t resident_bytes() const override;
  // 128-row blocks, see device/packed.cuh.
  bool is_packed() const { return packed_ != nullptr; }
  const std::byte* packed() const { return packed_->data(); }

  // Not packed: the stored parts on the card. Empty tensors inside; types and sizes are right.
  const StoredMatrix& stored() const { return stored_; }
  const std::byte* codes() const { return codes_->data(); }
  const std::byte* scales() const { return scales_ ? scales_->data() : nullptr; }
  const std::byte* biases() const { return biases_ ? biases_->data() : nullptr; }
  tensor::DType scale_type() const { return scale_type_; }

 private:
  std::shared_ptr<tensor::Buffer> packed_, codes_, scales_, biases_;
  StoredMatrix stored_;
  tensor::DType scale_type_ = tensor::DType::kF32;
};

std::size_t packed_bytes(std::int64_t n, std::int64_t k);
// Copies to the card, and packs there what the fast kernels can serve: 4-bit affine in groups of 64
// with bf16 scales below 1/4.
Result<std::unique_ptr<Matrix>> make_cuda_matrix(const StoredMatrix& stored, HostUpload& upload,
                                                 void* stream);

// Two matrices of one shape, row by row in turns; null when they are not of the fast kind.
Result<std::unique_ptr<Matrix>> make_gated_matrix(const StoredMatrix& gate, const StoredMatrix& up,
                                                  HostUpload& upload, void* stream);

}  // namespace flotilla::backend::cuda
