// Device functions over the packed form, shared by all its products.
#pragma once

#include "flotilla/backend/cuda/device/layout.cuh"
#include "flotilla/backend/cuda/device/ptx.cuh"
#include "flotilla/backend/cuda/device/values.cuh"

namespace flotilla::backend::cuda {

__device__ __forceinline__ const Segment& segment_of(const LinearParams& a, int rb) {
  return a.segments[(rb >= a.segments[1].first_block) + (rb >= a.segments[2].first_block)];
}
template <int kBytes = kBlockBytes>
__device__ __forceinline__ const std::uint8_t* block_at(const LinearParams& a, int rb, int g) {
  const Segment& s = segment_of(a, rb);
  return s.w + (static_cast<std::size_t>(rb - s.first_block) * a.part.groups + g) * kBytes;
}

// One accumulator fragment: tokens m, m + 1 of weight rows `row`, `row + 1` of block rb.
__device__ __forceinline__ void store_pair(const LinearParams& a, const Segment& s, int m, int row,
                                           const float* c) {
  if (row >= s.n) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (m + i >= a.m) continue;
    if (s.gated) {
      static_cast<bf16*>(s.y)[static_cast<std::size_t>(m + i) * (s.n / 2) + row / 2] =
          __float2bfloat16(gelu_times(c[i], c[i + 2]));
      continue;
    }
    const std::size_t at = static_cast<std::size_t>(m + i) * s.n + row;
    if (a.y_is_f32) {
      float* y = static_cast<float*>(s.y);
      if (s.n % 2 == 0) {
        *reinterpret_cast<float2*>(y + at) = make_float2(c[i], c[i + 2]);
      } else {
        y[at] = c[i];
        if (row + 1 < s.n) y[at + 1] = c[i + 2];
      }
    } else {
      bf16* y = static_cast<bf16*>(s.y);
      if (s.n % 2 == 0) {
        *reinterpret_cast<__nv_bfloat162*>(y + at) = __floats2bfloat162_rn(c[i], c[i + 2]);
      } else {
        y[at] = __float2bfloat16(c[i]);
        if (row + 1 < s.n) y[at + 1] = __float2bfloat16(c[i + 2]);
      }
    }
  }
}

// w = bf16(code * scale + bias), rounded once. A nibble in mantissa bits 3..6 under exponent 0 is
// the bf16 denormal code * 2^-130, exactly; the packed scale is scale * 2^130. Needs |scale| < 1/4,
// which the loader checks.
__device__ __forceinline__ std::uint32_t twice_low(std::uint32_t v) {
  return __byte_perm(v, 0, 0x1010);
}
__device__ __forceinline__ std::uint32_t twice_high(std::uint32_t v) {
  return __byte_perm(v, 0, 0x3232);
}
__device__ __forceinline__ std::uint32_t affine(std::uint32_t q, std::uint32_t s, std::uint32_t b) {
  std::uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(q), "r"(s), "r"(b));
  return r;
}
// One word of codes to A fragment registers; s0, b0 belong to row 2g, s1, b1 to row 2g + 1.
__device__ __forceinline__ void dequantize(std::uint32_t (&a)[4], std::uint32_t w, std::uint32_t s0,
                                           std::uint32_t b0, std::uint32_t s1, std::uint32_t b1) {
  constexpr std::uint32_t kMask = 0x00780078u;
  a[0] = affine(w & kMask, s0, b0);
  a[1] = affine((w >> 4) & kMask, s1, b1);
  a[2] = affine((w >> 8) & kMask, s0, b0);
  a[3] = affine(__funnelshift_l(w, w, 4) & kMask, s1, b1);
}

// A partial sum that has not arrived. Arithmetic never gives this pattern: its NaNs are 0x7fffffff.
constexpr std::uint32_t kMissing = 0xffffffffu;

__device__ __forceinline__ float4 load_relaxed(const float4* p) {
  float4 v;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ bool arrived(const float4& v) {
  return __float_as_uint(v.x) != kMissing && __float_as_uint(v.y) != kMissing &&
         __float_as_uint(v.z) != kMissing && __float_as_uint(v.w) != kMissing;
}

// The whole sums of kTiles x 16 rows of one warp.
template <int kTiles, int kColumns>
__device__ __forceinline__ void store_piece(const LinearParams& a, int rb, int tile0, int lane,
                                            float (&acc)[kTiles][kColumns][4]) {
  const Segment& s = segment_of(a, rb);
#pragma unroll
  for (int mt = 0; mt < kTiles; ++mt) {
    const int row = (rb - s.first_block) * kRows + (tile0 + mt) * 16 + 2 * (lane >> 2);
#pragma unroll
    for (int nt = 0; nt < kColumns; ++nt)
      store_pair(a, s, nt * 8 + 2 * (lane & 3), row, acc[mt][nt]);
  }
}

// End of a row block's piece, kTiles x 16 rows of one warp. The processor of the first piece owns
// the row block: the others store their sums and go on; the owner waits for each (the data is its
// own flag), adds them in index order, and puts kMissing back for the next launch. All thread
// blocks of the grid are resident, so the wait ends.
template <int kTiles, int kColumns>
__device__ __forceinline__ void finish_piece(const LinearParams& a, int proc, int rb, int tile0,
                                             int lane, float (&acc)[kTiles][kColumns][4]) {
  const int p0 = a.part.first_proc(rb), p1 = a.part.last_proc(rb);
  auto slot = [&](int p, int mt, int nt) {
    return reinterpret_cast<float4*>(a.partials) +
           ((static_cast<std::size_t>(p) * 8 + tile0 + mt) * kColumns + nt) * 32 + lane;
  };
  if (proc != p0) {
#pragma unroll
    for (int mt = 0; mt < kTiles; ++mt) {
#pragma unroll
      for (int nt = 0; nt < kColumns; ++nt) {
        const float(&c)[4] = acc[mt][nt];
        __stcg(slot(proc, mt, nt), make_float4(c[0], c[1], c[2], c[3]));
      }
    }
    return;
  }
  constexpr int kAtOnce = kColumns == 1   ? 4
                          : kColumns == 2 ? 2
                                          : 1;  // pieces that share one round trip
  for (int p = p0 + 1; p <= p1; p += kAtOnce) {
    float4 v[kAtOnce][kTiles][kColumns];
    bool all;
    do {
      all = true;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int mt = 0; mt < kTiles; ++mt) {
#pragma unroll
          for (int nt = 0; nt < kColumns; ++nt)
            v[i][mt][nt] = load_relaxed(slot(min(p + i, p1), mt, nt));
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int mt = 0; mt < kTiles; ++mt) {
#pragma unroll
          for (int nt = 0; nt < kColumns; ++nt) all = all && arrived(v[i][mt][nt]);
        }
      }
    } while (!all);
    const float missing = __uint_as_float(kMissing);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (p + i > p1) break;
#pragma unroll
      for (int mt = 0; mt < kTiles; ++mt) {
#pragma unroll
        for (int nt = 0; nt < kColumns; ++nt) {
          const float4 c = v[i][mt][nt];
          acc[mt][nt][0] += c.x, acc[mt][nt][1] += c.y;
          acc[mt][nt][2] += c.z, acc[mt][nt][3] += c.w;
          __stcg(slot(p + i, mt, nt), make_float4(missing, missing, missing, missing));
        }
      }
    }
  }
  store_piece<kTiles, kColumns>(a, rb, tile0, lane, acc);
}

// The rule of the bit-contract, as a parameter of the kernels: benches measure others.
struct PiecesInOrder {
  template <int kTiles, int kColumns>
  static __device__ __forceinline__ void finish(const LinearParams& a, int proc, int rb, int tile0,
                                                int lane, float (&acc)[kTiles][kColumns][4]) {
    finish_piece<kTiles, kColumns>(a, proc, rb, tile0, lane, acc);
  }
};

}  // namespace flotilla::backend::cuda
