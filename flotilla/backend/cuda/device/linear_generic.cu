// Products and rows of any stored format as it is, without packing: correct, and slow.
#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/stored.cuh"
#include "flotilla/backend/cuda/device/values.cuh"

namespace flotilla::backend::cuda {
namespace {

constexpr int kTokensPerWarp = 8;
constexpr int kWarps = 8;

template <class Out>
__global__ void linear_kernel(const __grid_constant__ GenericMatrix w, const bf16* x, int m,
                              Out* out) {
  grid_launch_dependents();
  grid_wait();
  const int n = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = blockIdx.y * kTokensPerWarp;
  if (n >= w.n) return;
  float sum[kTokensPerWarp] = {};
  for (int k = lane; k < w.k; k += 32) {
    const float weight = weight_at(w, n, k);
#pragma unroll
    for (int t = 0; t < kTokensPerWarp; ++t) {
      if (first + t >= m) continue;
      const float v = __bfloat162float(x[static_cast<std::size_t>(first + t) * w.k + k]);
      sum[t] = fmaf(weight, v, sum[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokensPerWarp; ++t) {
    const float total = sum_over_warp(sum[t]);
    if (first + t < m && lane == 0)
      store_one(out, static_cast<std::size_t>(first + t) * w.n + n, total);
  }
}

template <class Out>
__global__ void embedding_kernel(const __grid_constant__ GenericMatrix w,
                                 const __grid_constant__ TokenIds ids, float factor, Out* out) {
  grid_launch_dependents();
  grid_wait();
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= w.k) return;
  store_one(out, static_cast<std::size_t>(blockIdx.y) * w.k + column,
            weight_at(w, token_at(ids, blockIdx.y), column) * factor);
}

}  // namespace

cudaError_t linear_generic(const GenericMatrix& w, const bf16* x, int m, Values out,
                           cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((w.n + kWarps - 1) / kWarps),
                  static_cast<unsigned>((m + kTokensPerWarp - 1) / kTokensPerWarp));
  return out.is_f32 ? launch(linear_kernel<float>, grid, kWarps * 32, 0, stream, w, x, m,
                             static_cast<float*>(out.data))
                    : launch(linear_kernel<bf16>, grid, kWarps * 32, 0, stream, w, x, m,
                             static_cast<bf16*>(out.data));
}

cudaError_t embedding_generic(const GenericMatrix& w, const TokenIds& ids, int tokens, float factor,
                              Values out, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((w.k + 255) / 256), static_cast<unsigned>(tokens));
  return out.is_f32 ? launch(embedding_kernel<float>, grid, 256, 0, stream, w, ids, factor,
                             static_cast<float*>(out.data))
                    : launch(embedding_kernel<bf16>, grid, 256, 0, stream, w, ids, factor,
                             static_cast<bf16*>(out.data));
}

}  // namespace flotilla::backend::cuda
