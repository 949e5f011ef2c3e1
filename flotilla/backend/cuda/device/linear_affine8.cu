#include "flotilla/backend/cuda/device/linear_blocks.cuh"

namespace flotilla::backend::cuda {

cudaError_t launch_affine8(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                           cudaStream_t stream) {
  return launch_blocks<Affine8>(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::backend::cuda
