#include <algorithm>
#include <type_traits>

#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/launch.cuh"
#include "flotilla/backend/cuda/device/values.cuh"

namespace flotilla::backend::cuda {
namespace {

// One thread block per row; vector i of eight belongs to thread i mod the number of threads, which
// depends on dim alone.
template <class X, class Out, int kVectors>
__global__ void norm_kernel(const __grid_constant__ NormParams p) {
  __shared__ float slots[2][32];
  grid_launch_dependents();
  const std::size_t row = blockIdx.x;
  const int vectors = p.dim / 8;
  // Weights do not depend on the kernel before.
  float w[kVectors][8], add[kVectors][8];
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int i = threadIdx.x + j * blockDim.x;
    if (i >= vectors) continue;
    if (p.weight != nullptr) load8(p.weight + i * 8, w[j]);
    if (p.add_weight != nullptr) load8(p.add_weight + i * 8, add[j]);
  }
  grid_wait();
  const X* x = static_cast<const X*>(p.x.data) + row * p.dim;
  float h[kVectors][8], residual[kVectors][8];
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int i = threadIdx.x + j * blockDim.x;
    if (i >= vectors) continue;
    load8(x + i * 8, h[j]);
    if (p.add_weight != nullptr) load8(p.residual + row * p.dim + i * 8, residual[j]);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum = fmaf(h[j][e], h[j][e], sum);
  }
  if (p.add_weight != nullptr) {
    const float r =
        1.0f / sqrtf(sum_over_block(sum, slots[0]) / static_cast<float>(p.dim) + p.add_eps);
    sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int i = threadIdx.x + j * blockDim.x;
      if (i >= vectors) continue;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        h[j][e] = (residual[j][e] + (h[j][e] * r) * add[j][e]) * p.scale;
        sum = fmaf(h[j][e], h[j][e], sum);
      }
      store8(p.residual + row * p.dim + i * 8, h[j]);
    }
  }
  if (!p.norms) return;
  const float r = 1.0f / sqrtf(sum_over_block(sum, slots[1]) / static_cast<float>(p.dim) + p.eps);
  Out* out = static_cast<Out*>(p.out.data) + row * p.dim;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int i = threadIdx.x + j * blockDim.x;
    if (i >= vectors) continue;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      h[j][e] *= r;
      if (p.weight != nullptr) h[j][e] *= w[j][e];
    }
    store8(out + i * 8, h[j]);
  }
}

template <class X, class Out>
cudaError_t launch_norm(const NormParams& p, cudaStream_t stream) {
  const int threads = std::min(1024, (p.dim / 8 + 31) / 32 * 32);
  const dim3 grid(static_cast<unsigned>(p.rows));
  return p.dim <= 8 * 1024 ? launch(norm_kernel<X, Out, 1>, grid, threads, 0, stream, p)
                           : launch(norm_kernel<X, Out, 4>, grid, threads / 2, 0, stream, p);
}

template <class G, class U, class O>
__global__ void gelu_mul_kernel(const G* gate, const U* up, O* out, std::size_t count) {
  grid_launch_dependents();
  grid_wait();
  const std::size_t i = (blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x) * 8;
  if (i >= count) return;
  float g[8], u[8];
  load8(gate + i, g);
  load8(up + i, u);
#pragma unroll
  for (int e = 0; e < 8; ++e) g[e] = gelu_times(g[e], u[e]);
  store8(out + i, g);
}

template <class X>
__global__ void softcap_kernel(X* x, float cap, std::size_t count) {
  grid_launch_dependents();
  grid_wait();
  constexpr std::size_t kEach = 4;
  const std::size_t first =
      (blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x) * kEach;
  if (first + kEach <= count) {
    alignas(16) X v[kEach];
    using Vector = std::conditional_t<sizeof(X) == 4, uint4, uint2>;
    *reinterpret_cast<Vector*>(v) = *reinterpret_cast<const Vector*>(x + first);
#pragma unroll
    for (std::size_t e = 0; e < kEach; ++e) store_one(v, e, tanhf(load_one(v, e) / cap) * cap);
    *reinterpret_cast<Vector*>(x + first) = *reinterpret_cast<const Vector*>(v);
    return;
  }
  for (std::size_t i = first; i < count; ++i) store_one(x, i, tanhf(load_one(x, i) / cap) * cap);
}

__global__ void to_bf16_kernel(const float* from, bf16* to, std::size_t count) {
  grid_launch_dependents();
  grid_wait();
  const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  if (i < count) to[i] = __float2bfloat16(from[i]);
}

__global__ void gather_kernel(const std::uint32_t* from, const std::int32_t* rows,
                              std::size_t row_words, std::uint32_t* to) {
  grid_launch_dependents();
  grid_wait();
  const std::size_t source = static_cast<std::size_t>(rows[blockIdx.x]);
  for (std::size_t i = threadIdx.x; i < row_words; i += blockDim.x)
    to[blockIdx.x * row_words + i] = from[source * row_words + i];
}

struct Best {
  float value;
  std::int32_t index;
};
__device__ Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}
__device__ Best best_of_warp(Best v) {
  for (int d = 16; d > 0; d /= 2) {
    const Best other{__shfl_xor_sync(0xffffffffu, v.value, d),
                     __shfl_xor_sync(0xffffffffu, v.index, d)};
    v = better(v, other);
  }
  return v;
}

__global__ void argmax_part_kernel(const float* x, int dim, Best* parts) {
  __shared__ Best slots[32];
  grid_launch_dependents();
  grid_wait();
  const int per_part = (dim + kArgmaxParts - 1) / kArgmaxParts;
  const int begin = blockIdx.x * per_part, end = min(dim, begin + per_part);
  const float* row = x + static_cast<std::size_t>(blockIdx.y) * dim;
  Best best{-INFINITY, 0x7fffffff};
  for (int i = begin + threadIdx.x; i < end; i += blockDim.x)
    best = better(best, isfinite(row[i]) ? Best{row[i], i} : Best{INFINITY, -1});
  best = best_of_warp(best);
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = threadIdx.x < blockDim.x / 32 ? slots[threadIdx.x] : Best{-INFINITY, 0x7fffffff};
  best = best_of_warp(best);
  if (threadIdx.x == 0) parts[blockIdx.y * kArgmaxParts + blockIdx.x] = best;
}

__global__ void argmax_kernel(const Best* parts, std::int32_t* out, std::int32_t* choices) {
  grid_launch_dependents();
  grid_wait();
  const Best best = best_of_warp(parts[blockIdx.x * kArgmaxParts + threadIdx.x]);
  if (threadIdx.x != 0) return;
  out[blockIdx.x] = best.index;
  if (blockIdx.x < kMostChoices) choices[blockIdx.x] = best.index;
}

__global__ void zero_kernel(std::byte* const* pages, std::size_t vectors) {
  grid_launch_dependents();
  grid_wait();
  auto* page = reinterpret_cast<uint4*>(pages[blockIdx.x]);
  const std::size_t stride = static_cast<std::size_t>(gridDim.y) * blockDim.x;
  for (std::size_t i = blockIdx.y * blockDim.x + threadIdx.x; i < vectors; i += stride)
    page[i] = uint4{0, 0, 0, 0};
}

template <class X>
__global__ void rope_kernel(X* x, const std::int32_t* positions, const float* frequencies,
                            int heads, int dim) {
  grid_launch_dependents();
  grid_wait();
  const int pair = threadIdx.x + blockIdx.z * blockDim.x;
  if (pair >= dim / 2 || frequencies[pair] == 0.0f) return;
  X* at = x + (static_cast<std::size_t>(blockIdx.x) * heads + blockIdx.y) * dim;
  float sine, cosine;
  sincosf(static_cast<float>(positions[blockIdx.x]) * frequencies[pair], &sine, &cosine);
  const float a = load_one(at, pair), b = load_one(at, pair + dim / 2);
  store_one(at, pair, fmaf(a, cosine, -(b * sine)));
  store_one(at, pair + dim / 2, fmaf(b, cosine, a * sine));
}

__global__ void read_kernel(const uint4* data, std::size_t count, std::uint32_t* sink) {
  grid_launch_dependents();
  grid_wait();
  std::uint32_t seen = 0;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  for (; i + 7 * stride < count; i += 8 * stride) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = __ldcs(data + i + j * stride);
#pragma unroll
    for (int j = 0; j < 8; ++j) seen ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < count; i += stride) {
    const uint4 v = __ldcs(data + i);
    seen ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (seen == 0x12345678u) sink[blockIdx.x % 132] = seen;
}

__global__ void fault_kernel(volatile int* nowhere) { *nowhere = 1; }

unsigned blocks_for(std::size_t count, unsigned threads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

}  // namespace

cudaError_t norm(const NormParams& p, cudaStream_t stream) {
  if (p.rows == 0) return cudaSuccess;
  if (p.dim % 8 != 0 || p.dim > 8 * 2048) return cudaErrorInvalidValue;
  if (p.x.is_f32)
    return p.out.is_f32 ? launch_norm<float, float>(p, stream)
                        : launch_norm<float, bf16>(p, stream);
  return p.out.is_f32 ? launch_norm<bf16, float>(p, stream) : launch_norm<bf16, bf16>(p, stream);
}

cudaError_t gelu_mul(Values gate, Values up, Values out, std::size_t count, cudaStream_t stream) {
  if (count % 8 != 0 || gate.is_f32 != out.is_f32) return cudaErrorInvalidValue;
  const dim3 grid(blocks_for(count / 8, 128));
  const auto run = [&](auto* g, auto* u) {
    return launch(
        gelu_mul_kernel<std::remove_pointer_t<decltype(g)>, std::remove_pointer_t<decltype(u)>,
                        std::remove_pointer_t<decltype(g)>>,
        grid, 128, 0, stream, g, u, static_cast<decltype(g)>(out.data), count);
  };
  float* gf = static_cast<float*>(gate.data);
  float* uf = static_cast<float*>(up.data);
  bf16* gb = static_cast<bf16*>(gate.data);
  bf16* ub = static_cast<bf16*>(up.data);
  if (gate.is_f32) return up.is_f32 ? run(gf, uf) : run(gf, ub);
  return up.is_f32 ? run(gb, uf) : run(gb, ub);
}

cudaError_t softcap(Values x, float cap, std::size_t count, cudaStream_t stream) {
  const dim3 grid(blocks_for(count, 4 * 256));
  return x.is_f32 ? launch(softcap_kernel<float>, grid, 256, 0, stream, static_cast<float*>(x.data),
                           cap, count)
                  : launch(softcap_kernel<bf16>, grid, 256, 0, stream, static_cast<bf16*>(x.data),
                           cap, count);
}

cudaError_t to_bf16(const float* from, bf16* to, std::size_t count, cudaStream_t stream) {
  return launch(to_bf16_kernel, dim3(blocks_for(count, 256)), 256, 0, stream, from, to, count);
}

cudaError_t gather_rows(const void* from, const std::int32_t* rows, int num_rows,
                        std::size_t row_bytes, void* to, cudaStream_t stream) {
  if (row_bytes % 4 != 0) return cudaErrorInvalidValue;
  return launch(gather_kernel, dim3(static_cast<unsigned>(num_rows)), 256, 0, stream,
                static_cast<const std::uint32_t*>(from), rows, row_bytes / 4,
                static_cast<std::uint32_t*>(to));
}

cudaError_t fault(cudaStream_t stream) {
  fault_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(std::size_t{64}));
  return cudaGetLastError();
}

cudaError_t zero_pages(std::byte* const* pages, int count, std::size_t bytes, cudaStream_t stream) {
  if (bytes % 16 != 0) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(count), std::min(8u, blocks_for(bytes / 16, 256)));
  return launch(zero_kernel, grid, 256, 0, stream, pages, bytes / 16);
}

cudaError_t argmax(const float* x, int rows, int dim, void* scratch, std::int32_t* out,
                   std::int32_t* choices, cudaStream_t stream) {
  static_assert(kArgmaxParts == 32 && sizeof(Best) == 8);
  const cudaError_t first =
      launch(argmax_part_kernel, dim3(kArgmaxParts, static_cast<unsigned>(rows)), 512, 0, stream, x,
             dim, static_cast<Best*>(scratch));
  if (first != cudaSuccess) return first;
  return launch(argmax_kernel, dim3(static_cast<unsigned>(rows)), 32, 0, stream,
                static_cast<const Best*>(scratch), out, choices);
}

cudaError_t rope(Values x, const std::int32_t* positions, const float* frequencies, int tokens,
                 int heads, int dim, cudaStream_t stream) {
  const int threads = std::min(256, (dim / 2 + 31) / 32 * 32);
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(heads),
                  blocks_for(static_cast<std::size_t>(dim) / 2, static_cast<unsigned>(threads)));
  return x.is_f32 ? launch(rope_kernel<float>, grid, threads, 0, stream,
                           static_cast<float*>(x.data), positions, frequencies, heads, dim)
                  : launch(rope_kernel<bf16>, grid, threads, 0, stream, static_cast<bf16*>(x.data),
                           positions, frequencies, heads, dim);
}

cudaError_t read_all(const void* data, std::size_t bytes, std::uint32_t* sink, int multiprocessors,
                     cudaStream_t stream) {
  return launch(read_kernel, dim3(static_cast<unsigned>(multiprocessors) * 4), 512, 0, stream,
                static_cast<const uint4*>(data), bytes / 16, sink);
}

}  // namespace flotilla::backend::cuda
