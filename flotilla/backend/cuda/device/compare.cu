// Comparing results on the card, for stress runs.
#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/values.cuh"

namespace flotilla::backend::cuda {
namespace {

__global__ void compare_kernel(const std::uint32_t* a, const std::uint32_t* b, std::size_t count,
                               unsigned long long* differences) {
  grid_launch_dependents();
  grid_wait();
  unsigned found = 0;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
    found += a[i] != b[i] ? 1 : 0;
  found = __reduce_add_sync(0xffffffffu, found);
  if (threadIdx.x % 32 == 0 && found != 0) atomicAdd(differences, found);
}

}  // namespace

cudaError_t count_differences(const void* a, const void* b, std::size_t bytes,
                              unsigned long long* count, cudaStream_t stream) {
  return launch(compare_kernel, dim3(264), 512, 0, stream, static_cast<const std::uint32_t*>(a),
                static_cast<const std::uint32_t*>(b), bytes / 4, count);
}

}  // namespace flotilla::backend::cuda
