#include "flotilla/backend/cuda/device/linear_blocks.cuh"

namespace flotilla::backend::cuda {

cudaError_t launch_affine4_fine(const bf16* x, int k, const LinearParams& params,
                                int multiprocessors, cudaStream_t stream) {
  return launch_blocks<Affine4Fine>(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::backend::cuda
