// How every kernel of this backend is launched: with a programmatic edge to its predecessor, so
// each begins with grid_launch_dependents() and calls grid_wait() before it touches shared data.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace flotilla::backend::cuda {

template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, int threads, std::size_t shared_bytes,
                   cudaStream_t stream, Args&&... args) {
  constexpr std::size_t kDefaultShared = 48 * 1024;
  if (shared_bytes > kDefaultShared) {
    const cudaError_t set = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (set != cudaSuccess) return set;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

}  // namespace flotilla::backend::cuda
