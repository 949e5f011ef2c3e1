// Launches of the packed products and the work on packed blocks at load.
#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/linear_launch.cuh"
#include "flotilla/backend/cuda/device/packed.cuh"

namespace flotilla::backend::cuda {
namespace {

// One thread block per packed block, one thread per packed word. `n` rows: of the first source, or
// of both in turns.
__global__ void repack_kernel(const StoredRows first, const StoredRows second, bool turns,
                              std::uint8_t* packed, int n, int k, int* out_of_range) {
  const auto source = [&](int row) -> const StoredRows& {
    return turns && row % 2 == 1 ? second : first;
  };
  const auto row_of = [&](int row) { return static_cast<std::size_t>(turns ? row / 2 : row); };
  grid_launch_dependents();
  grid_wait();
  const std::size_t block = blockIdx.x;
  const int groups = k / kGroup;
  const int rb = static_cast<int>(block / groups), g = static_cast<int>(block % groups);
  std::uint8_t* to = packed + block * kBlockBytes;
  for (int i = threadIdx.x; i < kNibbleBytes / 4; i += blockDim.x) {
    const int warp = i >> 7, lane = (i >> 2) & 31, step = i & 3;
    const int row = rb * kRows + warp * 16 + 2 * (lane >> 2), t = lane & 3;
    std::uint32_t v = 0;
    for (int j = 0; j < 4; ++j) {  // fragment register a_j
      const int r = row + (j & 1);
      if (r >= n) continue;
      const int c = g * kGroup + step * 16 + 2 * t + (j >> 1) * 8;
      const std::uint32_t word = source(r).codes[row_of(r) * (k / 8) + c / 8];
      const int low = j < 3 ? 4 * j : 28, high = j < 3 ? 4 * j + 16 : 12;
      v |= ((word >> (4 * (c & 7))) & 15u) << low;
      v |= ((word >> (4 * (c & 7) + 4)) & 15u) << high;
    }
    reinterpret_cast<std::uint32_t*>(to)[i] = __funnelshift_l(v, v, 3);
  }
  for (int i = threadIdx.x; i < kRows; i += blockDim.x) {
    const int row = rb * kRows + i;
    bf16* p = reinterpret_cast<bf16*>(to + kNibbleBytes) + i * 2;
    if (row >= n) {
      p[0] = p[1] = __float2bfloat16(0.0f);
      continue;
    }
    const float scale = __bfloat162float(source(row).scales[row_of(row) * groups + g]);
    if (!(fabsf(scale) < 0.25f)) *out_of_range = 1;  // every writer writes the same
    p[0] = __float2bfloat16(scale * 0x1p65f * 0x1p65f);
    p[1] = source(row).biases[row_of(row) * groups + g];
  }
}

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

__device__ float packed_weight(const std::uint8_t* packed, int groups, int row, int column) {
  const std::uint8_t* block =
      packed + (static_cast<std::size_t>(row / kRows) * groups + column / kGroup) * kBlockBytes;
  const int r = row % kRows, c = column % kGroup, c16 = c % 16;
  const int lane = (r % 16) / 2 * 4 + (c16 % 8) / 2;
  const int j = (r & 1) | ((c16 / 8) << 1);
  const std::uint32_t word =
      reinterpret_cast<const std::uint32_t*>(block)[((r / 16) * 32 + lane) * 4 + c / 16];
  const std::uint32_t v = __funnelshift_r(word, word, 3);
  const int shift = (c & 1) == 0 ? (j < 3 ? 4 * j : 28) : (j < 3 ? 4 * j + 16 : 12);
  const bf16* p = reinterpret_cast<const bf16*>(block + kNibbleBytes) + r * 2;
  const float scale = __bfloat162float(p[0]) * 0x1p-65f * 0x1p-65f;
  return fmaf(static_cast<float>((v >> shift) & 15u), scale, __bfloat162float(p[1]));
}

__global__ void embedding_kernel(const std::uint8_t* packed, int k,
                                 const __grid_constant__ TokenIds ids, float factor, Values out) {
  grid_launch_dependents();
  grid_wait();
  const int token = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= k) return;
  const float w = packed_weight(packed, k / kGroup, token_at(ids, token), column) * factor;
  const std::size_t at = static_cast<std::size_t>(token) * k + column;
  if (out.is_f32) {
    static_cast<float*>(out.data)[at] = w;
  } else {
    static_cast<bf16*>(out.data)[at] = __float2bfloat16(w);
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

cudaError_t repack(const StoredRows& rows, std::uint8_t* packed, int n, int k, int* out_of_range,
                   cudaStream_t stream) {
  return launch(repack_kernel, dim3(blocks_of(n, k)), 256, 0, stream, rows, StoredRows{}, false,
                packed, n, k, out_of_range);
}

cudaError_t repack_in_turns(const StoredRows& first, const StoredRows& second, std::uint8_t* packed,
                            int n, int k, int* out_of_range, cudaStream_t stream) {
  return launch(repack_kernel, dim3(blocks_of(2 * n, k)), 256, 0, stream, first, second, true,
                packed, 2 * n, k, out_of_range);
}

cudaError_t synthesize(std::uint8_t* packed, int n, int k, std::uint64_t seed,
                       cudaStream_t stream) {
  return launch(synthesize_kernel, dim3(blocks_of(n, k)), 256, 0, stream, packed, n, k, seed);
}

cudaError_t embedding_packed(const std::uint8_t* packed, int k, const TokenIds& ids, int tokens,
                             float factor, Values out, cudaStream_t stream) {
  return launch(embedding_kernel, dim3((k + 255) / 256, tokens), 256, 0, stream, packed, k, ids,
                factor, out);
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
