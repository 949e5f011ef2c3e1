// Softmax attention over pages of 32 absolute positions, part of the bit-contract.
//
// Everything is done per query row (one query head of one token). Pages are taken in increasing
// order, in chunks of kChunkPages absolute pages. Within a chunk, starting from m = -inf, s = 0,
// v = 0:
//   score_j = (q . k_j) * scale * log2(e), the products summed by mma in a fixed order of d
//   m' = max(m, max_j score_j);  a = 2^(m - m');  p_j = 2^(score_j - m'), 0 for hidden keys
//   s = s * a + sum_j p_j (eight p of a lane in order, then two steps over the quad)
//   v = v * a, then += bf16(p_j) v_j by two mma steps of 16 keys
// Chunks are merged in order, also a single one: M' = max(M, m);  V = V * 2^(M - M') + v * 2^(m -
// M'), S likewise; out = V / S. A page or chunk of which a row sees nothing changes nothing.
//
// Which d and which keys meet in an mma step is chosen so that every lane reads 16 neighbouring
// bytes: of K, lane 4g + t reads channels 8t..8t+7 of every 32; of V, keys 8t..8t+7 of the page. So
// column c of score tile j is key 8 * (c / 2) + 2 * j + c % 2, and a lane's scores are its keys.
#pragma once

#include "flotilla/backend/cuda/device/kernels.cuh"
#include "flotilla/backend/cuda/device/ptx.cuh"

namespace flotilla::backend::cuda {

constexpr float kLog2e = 1.4426950408889634f;

// Row r of 16 of a tile is query head first_head + r % heads of token first_token + r / heads.
struct TileRows {
  int heads;      // per token
  int num_rows;   // rows that exist
  int position0;  // of the first token
  // The position of row r, or -1: it sees nothing.
  __device__ int position(int r) const { return r < num_rows ? position0 + r / heads : -1; }
};

__device__ __forceinline__ int key_of(int lane, int tile, int e) {
  return 8 * (lane & 3) + 2 * tile + e;
}
__device__ __forceinline__ int key_row(int lane, int tile) {  // the K row that a lane loads
  return 8 * (lane >> 3) + 2 * tile + ((lane >> 2) & 1);
}

// Two steps of 16 channels for one tile of 8 keys: q0, q1 are 16 bytes of query rows g and g + 8.
__device__ __forceinline__ void score_steps(float (&s)[4], const uint4& q0, const uint4& q1,
                                            const uint4& k) {
  const std::uint32_t a[4] = {q0.x, q1.x, q0.y, q1.y};
  mma(s, a, k.x, k.y);
  const std::uint32_t b[4] = {q0.z, q1.z, q0.w, q1.w};
  mma(s, b, k.z, k.w);
}

// Scores to exponents: scales, hides what rows g and g + 8 do not see, and returns the maxima.
__device__ __forceinline__ void mask_scores(float (&s)[4][4], float scale, int page, int window,
                                            int position0, int position1, int lane, float& max0,
                                            float& max1) {
  max0 = max1 = -INFINITY;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int key = page * kPageTokens + key_of(lane, j, e);
      const bool sees0 = key <= position0 && (window == 0 || key > position0 - window);
      const bool sees1 = key <= position1 && (window == 0 || key > position1 - window);
      s[j][e] = sees0 ? s[j][e] * scale : -INFINITY;
      s[j][e + 2] = sees1 ? s[j][e + 2] * scale : -INFINITY;
      max0 = fmaxf(max0, s[j][e]);
      max1 = fmaxf(max1, s[j][e + 2]);
    }
  }
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
    max0 = fmaxf(max0, __shfl_xor_sync(0xffffffffu, max0, d));
    max1 = fmaxf(max1, __shfl_xor_sync(0xffffffffu, max1, d));
  }
}

// The same where rows g and g + 8 see the whole page.
__device__ __forceinline__ void scale_scores(float (&s)[4][4], float scale, float& max0,
                                             float& max1) {
  max0 = max1 = -INFINITY;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[j][e] *= scale, s[j][e + 2] *= scale;
      max0 = fmaxf(max0, s[j][e]);
      max1 = fmaxf(max1, s[j][e + 2]);
    }
  }
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
    max0 = fmaxf(max0, __shfl_xor_sync(0xffffffffu, max0, d));
    max1 = fmaxf(max1, __shfl_xor_sync(0xffffffffu, max1, d));
  }
}

// What exponents are relative to: the maximum, or 0 while nothing was seen.
__device__ __forceinline__ float exponent_base(float max) { return max == -INFINITY ? 0.0f : max; }

// Exponents to weights, their sums, and the A fragments of the two steps over the page's keys.
__device__ __forceinline__ void exponentiate(float (&s)[4][4], float base0, float base1,
                                             float& sum0, float& sum1, std::uint32_t (&a)[2][4]) {
  sum0 = sum1 = 0.0f;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[j][e] = exp2_fast(s[j][e] - base0);
      s[j][e + 2] = exp2_fast(s[j][e + 2] - base1);
      sum0 += s[j][e];
      sum1 += s[j][e + 2];
    }
  }
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
    sum0 += __shfl_xor_sync(0xffffffffu, sum0, d);
    sum1 += __shfl_xor_sync(0xffffffffu, sum1, d);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    a[i][0] = pack_bf16(s[2 * i][0], s[2 * i][1]);
    a[i][1] = pack_bf16(s[2 * i][2], s[2 * i][3]);
    a[i][2] = pack_bf16(s[2 * i + 1][0], s[2 * i + 1][1]);
    a[i][3] = pack_bf16(s[2 * i + 1][2], s[2 * i + 1][3]);
  }
}

// The running total of one row, and how a chunk enters it.
struct Merge {
  float old_factor, new_factor;
};
__device__ __forceinline__ Merge merge_chunk(float& max, float& sum, float chunk_max,
                                             float chunk_sum) {
  if (chunk_max == -INFINITY) return {1.0f, 0.0f};
  const float larger = fmaxf(max, chunk_max);
  const Merge f{exp2_fast(max - larger), exp2_fast(chunk_max - larger)};
  max = larger;
  sum = fmaf(sum, f.old_factor, chunk_sum * f.new_factor);
  return f;
}
__device__ __forceinline__ float merged(const Merge& f, float total, float value) {
  return fmaf(total, f.old_factor, value * f.new_factor);
}

// Query heads that share a tile: those of one KV head, or an equal part of them.
__host__ __device__ inline int heads_per_tile(int num_heads, int num_kv_heads) {
  const int group = num_heads / num_kv_heads;
  int parts = 1;
  while (group % parts != 0 || group / parts > 16) ++parts;
  return group / parts;
}

cudaError_t launch_attention_decode(const AttentionParams& params, cudaStream_t stream);
cudaError_t launch_attention_prefill(const AttentionParams& params, cudaStream_t stream);
// The same for heads of 256 and 512 channels.
cudaError_t launch_attention_wgmma(const AttentionParams& params, cudaStream_t stream);

}  // namespace flotilla::backend::cuda
