// Reading and writing activations of either type, and sums over a thread block of fixed order.
#pragma once

#include "flotilla/backend/cuda/device/ptx.cuh"

namespace flotilla::backend::cuda {

__device__ __forceinline__ float load_one(const float* p, std::size_t i) { return p[i]; }
__device__ __forceinline__ float load_one(const bf16* p, std::size_t i) {
  return __bfloat162float(p[i]);
}
__device__ __forceinline__ void store_one(float* p, std::size_t i, float v) { p[i] = v; }
__device__ __forceinline__ void store_one(bf16* p, std::size_t i, float v) {
  p[i] = __float2bfloat16(v);
}

// See TokenIds. A choice of -1 (logits that are not finite) stands for a request that has failed.
template <class Ids>
__device__ __forceinline__ int token_at(const Ids& ids, int i) {
  return ids.from[i] >= 0 ? max(0, ids.choices[ids.from[i]]) : ids.ids[i];
}

// Eight neighbours, 16-byte aligned.
__device__ __forceinline__ void load8(const float* p, float (&v)[8]) {
  const float4 a = *reinterpret_cast<const float4*>(p);
  const float4 b = *reinterpret_cast<const float4*>(p + 4);
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
  v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}
__device__ __forceinline__ void load8(const bf16* p, float (&v)[8]) {
  const uint4 a = *reinterpret_cast<const uint4*>(p);
  v[0] = low_bf16(a.x), v[1] = high_bf16(a.x), v[2] = low_bf16(a.y), v[3] = high_bf16(a.y);
  v[4] = low_bf16(a.z), v[5] = high_bf16(a.z), v[6] = low_bf16(a.w), v[7] = high_bf16(a.w);
}
__device__ __forceinline__ void store8(float* p, const float (&v)[8]) {
  *reinterpret_cast<float4*>(p) = make_float4(v[0], v[1], v[2], v[3]);
  *reinterpret_cast<float4*>(p + 4) = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ __forceinline__ void store8(bf16* p, const float (&v)[8]) {
  *reinterpret_cast<uint4*>(p) = make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                                            pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

// gelu_tanh(gate) * up
__device__ __forceinline__ float gelu_times(float gate, float up) {
  constexpr float kA = -1.5957691216057308f, kB = -0.07135481627260025f;
  constexpr float kLog2e = 1.4426950408889634f;
  const float power = exp2_fast(gate * fmaf(gate * gate, kB, kA) * kLog2e);
  return __fdividef(gate, 1.0f + power) * up;
}

__device__ __forceinline__ float sum_over_warp(float v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}
// The sum over all threads, the same in each. `slots`: 32 floats, not used by an earlier call that
// some thread may still read.
__device__ __forceinline__ float sum_over_block(float v, float* slots) {
  v = sum_over_warp(v);
  const int warps = blockDim.x / 32;
  if (warps == 1) return v;
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = v;
  __syncthreads();
  return sum_over_warp(threadIdx.x % 32 < warps ? slots[threadIdx.x % 32] : 0.0f);
}

}  // namespace flotilla::backend::cuda
