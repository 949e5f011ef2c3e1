// A matrix on the card: packed for the tensor cores, or as the checkpoint stores it.
#pragma once

#include <memory>
#include <optional>

#include "flotilla/backend/backend.h"

namespace flotilla::backend::cuda {

class HostUpload;
enum class BlockFormat : int;  // device/kernels.cuh
struct GenericMatrix;

class CudaMatrix final : public Matrix {
 public:
  CudaMatrix(std::int64_t n, std::int64_t k, BlockFormat format,
             std::shared_ptr<tensor::Buffer> packed)
      : Matrix(n, k), packed_(std::move(packed)), format_(format) {}
  CudaMatrix(const StoredMatrix& stored, std::shared_ptr<tensor::Buffer> codes,
             std::shared_ptr<tensor::Buffer> scales, std::shared_ptr<tensor::Buffer> biases);

  std::size_t resident_bytes() const override;
  // 128-row blocks, see device/block_formats.cuh.
  bool is_packed() const { return packed_ != nullptr; }
  const std::byte* packed() const { return packed_->data(); }
  BlockFormat format() const { return format_; }

  // Not packed: the stored parts on the card. Empty tensors inside; types and sizes are right.
  const StoredMatrix& stored() const { return stored_; }
  const std::byte* codes() const { return codes_->data(); }
  const std::byte* scales() const { return scales_ ? scales_->data() : nullptr; }
  const std::byte* biases() const { return biases_ ? biases_->data() : nullptr; }
  tensor::DType scale_type() const { return scale_type_; }

 private:
  std::shared_ptr<tensor::Buffer> packed_, codes_, scales_, biases_;
  BlockFormat format_ = {};
  StoredMatrix stored_;
  tensor::DType scale_type_ = tensor::DType::kF32;
};

// How the fast kernels would hold such a matrix, if they can: affine codes of 4 or 8 bits in groups
// of 32, 64 or 128 with bf16 scales, mxfp4, mxfp8 and bf16, rows of whole groups of 64.
std::optional<BlockFormat> block_format(WeightFormat format, int bits, int group_size,
                                        tensor::DType scale_type, std::int64_t k);
// The parts of a matrix that is not packed, for kernels.
GenericMatrix generic_matrix(const CudaMatrix& m);
std::size_t packed_bytes(BlockFormat format, std::int64_t n, std::int64_t k);
// Copies to the card, and packs there what the fast kernels can serve. A matrix with numbers that
// do not fit their form (scales of 1/4 and more at 4 bits, see device/block_formats.cuh) stays as
// it is.
Result<std::unique_ptr<Matrix>> make_cuda_matrix(const StoredMatrix& stored, HostUpload& upload,
                                                 void* stream);

// Two matrices of one shape and kind, row by row in turns; null when they are not of the fast kind.
Result<std::unique_ptr<Matrix>> make_gated_matrix(const StoredMatrix& gate, const StoredMatrix& up,
                                                  HostUpload& upload, void* stream);

}  // namespace flotilla::backend::cuda
