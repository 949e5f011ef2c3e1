// Launches of the products of 4-bit affine blocks.
#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/linear_launch.cuh"
#include "flotilla/backend/cuda/device/packed.cuh"

namespace flotilla::backend::cuda {
namespace {

__device__ std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

__global__ void synthesize_kernel(std::uint8_t* packed, int n, int k, std::uint64_t seed) {
  grid_launch_dependents();
  grid_wait();
  const std::size_t block = blockIdx.x;
  std::uint8_t* to = packed + block * kBlockBytes;
  const int groups = k / kGroup;
  for (int i = threadIdx.x; i < kNibbleBytes / 4; i += blockDim.x) {
    reinterpret_cast<std::uint32_t*>(to)[i] =
        static_cast<std::uint32_t>(mix(seed + (block * 1024 + i) * 0x9e3779b97f4a7c15u));
  }
  // Weights of variance 1 / k: codes are uniform in 0..15, so their deviation is 4.6.
  const float unit = rsqrtf(static_cast<float>(k)) / 4.6f;
  for (int i = threadIdx.x; i < kRows; i += blockDim.x) {
    const int row = static_cast<int>(block / groups) * kRows + i;
    const float jitter =
        static_cast<float>(mix(seed ^ (block * kRows + i)) & 0xffffu) / 65536.0f * 0.4f + 0.8f;
    const float scale = row < n ? __bfloat162float(__float2bfloat16(unit * jitter)) : 0.0f;
    bf16* p = reinterpret_cast<bf16*>(to + kNibbleBytes) + i * 2;
    p[0] = __float2bfloat16(scale * 0x1p65f * 0x1p65f);
    p[1] = __float2bfloat16(-7.5f * scale);
  }
}

__global__ void fill_kernel(std::uint32_t* data, std::size_t count) {
  grid_launch_dependents();
  grid_wait();
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x)
    data[i] = kMissing;
}

int blocks_of(int n, int k) { return (n + kRows - 1) / kRows * (k / kGroup); }

}  // namespace

cudaError_t fill_missing(float* partials, std::size_t bytes, cudaStream_t stream) {
  return launch(fill_kernel, dim3(256), 256, 0, stream, reinterpret_cast<std::uint32_t*>(partials),
                bytes / 4);
}

cudaError_t synthesize(std::uint8_t* packed, int n, int k, std::uint64_t seed,
                       cudaStream_t stream) {
  return launch(synthesize_kernel, dim3(blocks_of(n, k)), 256, 0, stream, packed, n, k, seed);
}

cudaError_t linear_packed(const bf16* x, int k, LinearParams params, const Workspace& workspace,
                          int multiprocessors, cudaStream_t stream) {
  params.partials = workspace.partials;
  params.totals = workspace.totals;
  const int m = params.m;
  if (m <= 16) return launch_decode(x, k, params, multiprocessors, stream);
  if (m <= kSplitTokens) return launch_split(x, k, params, multiprocessors, stream);
  return launch_prefill(x, k, params, multiprocessors, stream);
}

}  // namespace flotilla::backend::cuda
