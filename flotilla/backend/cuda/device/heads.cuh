// One head of one token, spread over a warp: norm and rotation before attention.
#pragma once

#include "flotilla/backend/cuda/device/values.cuh"

namespace flotilla::backend::cuda {

// The 2 * kPairs values of a lane of one head: pairs lane + 32 * i and their partners half a head
// further on.
template <int kDim>
struct Head {
  static constexpr int kPairs = kDim >= 64 ? kDim / 64 : 1;
  static __device__ bool has(int lane) { return kDim >= 64 || lane < kDim / 2; }
  float low[kPairs], high[kPairs];

  __device__ void load(const bf16* from, int lane) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int p = lane + 32 * i;
      low[i] = has(lane) ? __bfloat162float(from[p]) : 0.0f;
      high[i] = has(lane) ? __bfloat162float(from[p + kDim / 2]) : 0.0f;
    }
  }
  __device__ void norm(const Head* weight, float eps) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) sum = fmaf(low[i], low[i], fmaf(high[i], high[i], sum));
    const float r = 1.0f / sqrtf(sum_over_warp(sum) / static_cast<float>(kDim) + eps);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      low[i] *= r, high[i] *= r;
      if (weight != nullptr) low[i] *= weight->low[i], high[i] *= weight->high[i];
    }
  }
  __device__ void load_weight(const float* from, int lane) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      low[i] = has(lane) ? from[lane + 32 * i] : 0.0f;
      high[i] = has(lane) ? from[lane + 32 * i + kDim / 2] : 0.0f;
    }
  }
  // Cosines in `low`, sines in `high`; pairs of frequency 0 stay as they are.
  __device__ void load_angles(int position, const float* frequencies, int lane) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float f = has(lane) ? frequencies[lane + 32 * i] : 0.0f;
      low[i] = 1.0f, high[i] = 0.0f;
      if (f != 0.0f) sincosf(static_cast<float>(position) * f, &high[i], &low[i]);
    }
  }
  __device__ void rotate(const Head& angles) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const float x = low[i], y = high[i];
      low[i] = fmaf(x, angles.low[i], -(y * angles.high[i]));
      high[i] = fmaf(y, angles.low[i], x * angles.high[i]);
    }
  }
  __device__ void store(bf16* to, int lane) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (!has(lane)) continue;
      to[lane + 32 * i] = __float2bfloat16(low[i]);
      to[lane + 32 * i + kDim / 2] = __float2bfloat16(high[i]);
    }
  }
  __device__ void store_column(bf16* to, int pitch, int lane) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (!has(lane)) continue;
      to[(lane + 32 * i) * pitch] = __float2bfloat16(low[i]);
      to[(lane + 32 * i + kDim / 2) * pitch] = __float2bfloat16(high[i]);
    }
  }
};

}  // namespace flotilla::backend::cuda
