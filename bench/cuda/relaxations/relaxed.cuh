// Products that break the bit-contract, to measure what it costs. The kernels are those of the
// library, but for how the pieces of a row block are added.
#pragma once

#include "flotilla/backend/cuda/device/kernels.cuh"

namespace flotilla::cuda_check {

namespace device = backend::cuda;

enum class Pieces : int {
  kInOrder,      // as the library does
  kAtomics,      // red.global.add to float32 outputs; zeroing and rounding them are not counted
  kLastArriver,  // whoever comes last adds the others to its own
};
// Up to 16 tokens, or 17 to 64. For kAtomics y must be float32, for kLastArriver
// params.totals points to zeroed counters, 8 for each row block.
cudaError_t relaxed_product(Pieces pieces, const device::bf16* x, int k,
                            const device::LinearParams& params, int multiprocessors,
                            cudaStream_t stream);
cudaError_t relaxed_split(Pieces pieces, const device::bf16* x, int k,
                          const device::LinearParams& params, int multiprocessors,
                          cudaStream_t stream);

}  // namespace flotilla::cuda_check
