// How every kernel of this backend is launched: as a rule with a programmatic edge to its
// predecessor, so each begins with grid_launch_dependents() and calls grid_wait() before it touches
// shared data.
//
// The packed products of few tokens need care. Two of their thread blocks fit on a multiprocessor,
// this product's and the next one's, and they must spread one to each. A kernel of one or a few
// large blocks between two products (a norm, attention) breaks that: the next product's blocks
// gather elsewhere, two on one multiprocessor, and it takes up to twice as long (measured: norm and
// gate + up 60 instead of 40 us). After such a kernel a product is launched with a full edge.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace flotilla::backend::cuda {

template <class... Params, class... Args>
cudaError_t launch_after(bool early, void (*kernel)(Params...), dim3 grid, int threads,
                         std::size_t shared_bytes, cudaStream_t stream, Args&&... args) {
  constexpr std::size_t kDefaultShared = 48 * 1024;
  if (shared_bytes > kDefaultShared) {
    const cudaError_t set = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (set != cudaSuccess) return set;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = early ? 1 : 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, int threads, std::size_t shared_bytes,
                   cudaStream_t stream, Args&&... args) {
  return launch_after(true, kernel, grid, threads, shared_bytes, stream,
                      static_cast<Params>(args)...);
}

}  // namespace flotilla::backend::cuda
