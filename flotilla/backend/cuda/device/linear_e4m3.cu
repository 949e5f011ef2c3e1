#include "flotilla/backend/cuda/device/linear_blocks.cuh"

namespace flotilla::backend::cuda {

cudaError_t launch_e4m3(const bf16* x, int k, const LinearParams& params, int multiprocessors,
                        cudaStream_t stream) {
  return launch_blocks<E4M3>(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::backend::cuda
