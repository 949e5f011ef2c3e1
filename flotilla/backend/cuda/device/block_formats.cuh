// How weights lie in a packed block of 128 rows x 64 columns, and how a lane makes bf16 fragments
// of them. Every format is walked by the same kernels over the same partition. All hold fragment
// registers a0..a3 of four steps of 16 columns; which element belongs to which register is in
// layout.cuh. A weight becomes bf16 with one rounding (none where the format has at most 8 bits of
// mantissa and scales are powers of two).
//
//   Affine4      layout.cuh. Groups of 64, or of 128 with each scale twice.
//   Affine4Fine  the same codes; scales [half 0..1][row]{ scale * 2^130, bias }: groups of 32.
//   Affine8      codes [tile 0..7][steps 0..1 or 2..3][lane] of 16 bytes: for each step two words,
//                w0 = a0 in bytes 0 and 2, a1 in bytes 1 and 3; w1 = a2 and a3. Scales as Affine4
//                with scale * 2^133: a byte in the low bits of a bf16 is code * 2^-133, exactly.
//                Needs |scale| < 1/32.
//   Affine8Fine  the same with the scales of Affine4Fine.
//   E2M1         mxfp4. Words as in Affine4, but each half of a word holds four codes cut in two:
//                magnitude bits from kE2M1Bits.magnitude[i], the sign at kE2M1Bits.sign[i], for the
//                low and high half of a_i. Scales [row][half] of one byte: exponent + 126. The
//                magnitude in exponent and mantissa bits 6..8 of a bf16 is code * 2^-126. Needs
//                scales of at most 2.
//   E4M3         mxfp8. Codes as Affine8, scales as E2M1: exponent + 120. Needs scales of at most
//                2^7 and no NaN.
//   Dense        bf16. [tile][step][lane]{ a0, a1, a2, a3 }.
#pragma once

#include "flotilla/backend/cuda/device/packed.cuh"

namespace flotilla::backend::cuda {

__device__ __forceinline__ std::uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ __forceinline__ std::uint32_t shared_load4(std::uint32_t at) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
  return v;
}

// Scale and bias of rows 2g and 2g + 1, in both halves of a register.
struct AffinePair {
  std::uint32_t s0, b0, s1, b1;
  static __device__ __forceinline__ AffinePair of(const uint2& v) {
    return {twice_low(v.x), twice_high(v.x), twice_low(v.y), twice_high(v.y)};
  }
};
// One or two groups of columns in a block.
template <int kHalves>
struct AffineScales {
  AffinePair half[kHalves];
  __device__ __forceinline__ const AffinePair& at(int step) const {
    return half[kHalves == 1 ? 0 : step / 2];
  }
};
// { scale, bias } of each row, for each half.
template <int kHalves>
struct AffineRows {
  static constexpr int kTileScaleBytes = 64;
  static constexpr int kScaleBytes = kHalves * kRows * 4;
  static __device__ __forceinline__ std::uint32_t lane_scales(int lane) { return (lane >> 2) * 8; }
};

template <int kHalves>
struct Affine4Of : AffineRows<kHalves> {
  static constexpr int kCodeBytes = kNibbleBytes, kTileBytes = 512;
  static constexpr int kBlockBytes = kCodeBytes + AffineRows<kHalves>::kScaleBytes;
  static constexpr int kDecodeGroups = 4, kDecodeStages = 2;  // of a stage; of the ring
  struct Loaded {
    uint4 codes;
    uint2 scales[kHalves];
  };
  using Scales = AffineScales<kHalves>;
  static __device__ __forceinline__ Loaded load(std::uint32_t codes, std::uint32_t scales) {
    Loaded w;
    w.codes = shared_load16(codes);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) w.scales[h] = shared_load8(scales + h * kRows * 4);
    return w;
  }
  static __device__ __forceinline__ Scales scales(const Loaded& w) {
    Scales s;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) s.half[h] = AffinePair::of(w.scales[h]);
    return s;
  }
  static __device__ __forceinline__ void fragment(std::uint32_t (&a)[4], const Loaded& w,
                                                  const Scales& scales, int step) {
    const AffinePair& p = scales.at(step);
    dequantize(a, word_of(w.codes, step), p.s0, p.b0, p.s1, p.b1);
  }
};
using Affine4 = Affine4Of<1>;
using Affine4Fine = Affine4Of<2>;
static_assert(Affine4::kBlockBytes == kBlockBytes);

template <int kHalves>
struct Affine8Of : AffineRows<kHalves> {
  static constexpr int kCodeBytes = kRows * kGroup, kTileBytes = 1024;
  static constexpr int kBlockBytes = kCodeBytes + AffineRows<kHalves>::kScaleBytes;
  static constexpr int kDecodeGroups = 2, kDecodeStages = 4;
  struct Loaded {
    uint4 codes[2];
    uint2 scales[kHalves];
  };
  using Scales = AffineScales<kHalves>;
  static __device__ __forceinline__ Loaded load(std::uint32_t codes, std::uint32_t scales) {
    Loaded w;
    w.codes[0] = shared_load16(codes);
    w.codes[1] = shared_load16(codes + 512);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) w.scales[h] = shared_load8(scales + h * kRows * 4);
    return w;
  }
  static __device__ __forceinline__ Scales scales(const Loaded& w) {
    Scales s;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) s.half[h] = AffinePair::of(w.scales[h]);
    return s;
  }
  static __device__ __forceinline__ void fragment(std::uint32_t (&a)[4], const Loaded& w,
                                                  const Scales& scales, int step) {
    constexpr std::uint32_t kMask = 0x00ff00ffu;
    const AffinePair& p = scales.at(step);
    const std::uint32_t w0 = word_of(w.codes[step / 2], step % 2 * 2);
    const std::uint32_t w1 = word_of(w.codes[step / 2], step % 2 * 2 + 1);
    a[0] = affine(w0 & kMask, p.s0, p.b0);
    a[1] = affine((w0 >> 8) & kMask, p.s1, p.b1);
    a[2] = affine(w1 & kMask, p.s0, p.b0);
    a[3] = affine((w1 >> 8) & kMask, p.s1, p.b1);
  }
};
using Affine8 = Affine8Of<1>;
using Affine8Fine = Affine8Of<2>;

// Powers of two: for rows 2g and 2g + 1 the bytes of both halves.
struct PowerScales {
  std::uint32_t s0[2], s1[2];
  static constexpr int kTileScaleBytes = 32;
  static constexpr int kScaleBytes = kRows * 2;
  static constexpr std::uint32_t kNegativeZero = 0x80008000u;  // a bias that changes nothing
  static __device__ __forceinline__ PowerScales of(std::uint32_t v) {
    return {{__byte_perm(v, 0, 0x4040) << 7, __byte_perm(v, 0, 0x4141) << 7},
            {__byte_perm(v, 0, 0x4242) << 7, __byte_perm(v, 0, 0x4343) << 7}};
  }
};

// Such that two of the four need no more than one shift and one mask.
struct E2M1Bits {
  int magnitude[4], sign[4];
};
constexpr E2M1Bits kE2M1Bits = {{6, 0, 10, 3}, {15, 9, 13, 14}};

struct E2M1 {
  static constexpr int kCodeBytes = kNibbleBytes, kTileBytes = 512;
  static constexpr int kTileScaleBytes = PowerScales::kTileScaleBytes;
  static constexpr int kBlockBytes = kCodeBytes + PowerScales::kScaleBytes;
  static constexpr int kDecodeGroups = 4, kDecodeStages = 2;
  struct Loaded {
    uint4 codes;
    std::uint32_t scales;
  };
  using Scales = PowerScales;
  static __device__ __forceinline__ std::uint32_t lane_scales(int lane) { return (lane >> 2) * 4; }
  static __device__ __forceinline__ Loaded load(std::uint32_t codes, std::uint32_t scales) {
    return {shared_load16(codes), shared_load4(scales)};
  }
  static __device__ __forceinline__ Scales scales(const Loaded& w) {
    return PowerScales::of(w.scales);
  }
  static __device__ __forceinline__ void fragment(std::uint32_t (&a)[4], const Loaded& w,
                                                  const Scales& scales, int step) {
    constexpr std::uint32_t kValue = 0x01c001c0u, kSign = 0x80008000u;
    constexpr std::uint32_t kBoth = kValue | kSign;
    const std::uint32_t v = word_of(w.codes, step);
    const std::uint32_t s0 = scales.s0[step / 2], s1 = scales.s1[step / 2];
    constexpr std::uint32_t kNone = PowerScales::kNegativeZero;
    a[0] = affine(v & kBoth, s0, kNone);
    a[1] = affine((v << 6) & kBoth, s1, kNone);
    a[2] = affine(((v >> 4) & kValue) | ((v << 2) & kSign), s0, kNone);
    a[3] = affine(((v << 3) & kValue) | ((v << 1) & kSign), s1, kNone);
  }
};

struct E4M3 {
  static constexpr int kCodeBytes = kRows * kGroup, kTileBytes = 1024;
  static constexpr int kTileScaleBytes = PowerScales::kTileScaleBytes;
  static constexpr int kBlockBytes = kCodeBytes + PowerScales::kScaleBytes;
  static constexpr int kDecodeGroups = 2, kDecodeStages = 4;
  struct Loaded {
    uint4 codes[2];
    std::uint32_t scales;
  };
  using Scales = PowerScales;
  static __device__ __forceinline__ std::uint32_t lane_scales(int lane) { return (lane >> 2) * 4; }
  static __device__ __forceinline__ Loaded load(std::uint32_t codes, std::uint32_t scales) {
    return {{shared_load16(codes), shared_load16(codes + 512)}, shared_load4(scales)};
  }
  static __device__ __forceinline__ Scales scales(const Loaded& w) {
    return PowerScales::of(w.scales);
  }
  static __device__ __forceinline__ void fragment(std::uint32_t (&a)[4], const Loaded& w,
                                                  const Scales& scales, int step) {
    constexpr std::uint32_t kValue = 0x07f007f0u, kSign = 0x80008000u;
    constexpr std::uint32_t kNone = PowerScales::kNegativeZero;
    const std::uint32_t w0 = word_of(w.codes[step / 2], step % 2 * 2);
    const std::uint32_t w1 = word_of(w.codes[step / 2], step % 2 * 2 + 1);
    const std::uint32_t s0 = scales.s0[step / 2], s1 = scales.s1[step / 2];
    a[0] = affine(((w0 << 4) & kValue) | ((w0 << 8) & kSign), s0, kNone);
    a[1] = affine(((w0 >> 4) & kValue) | (w0 & kSign), s1, kNone);
    a[2] = affine(((w1 << 4) & kValue) | ((w1 << 8) & kSign), s0, kNone);
    a[3] = affine(((w1 >> 4) & kValue) | (w1 & kSign), s1, kNone);
  }
};

struct Dense {
  static constexpr int kCodeBytes = kRows * kGroup * 2, kTileBytes = 2048, kTileScaleBytes = 0;
  static constexpr int kBlockBytes = kCodeBytes;
  static constexpr int kDecodeGroups = 2, kDecodeStages = 3;
  struct Loaded {
    uint4 steps[4];
  };
  struct Scales {};
  static __device__ __forceinline__ std::uint32_t lane_scales(int) { return 0; }
  static __device__ __forceinline__ Loaded load(std::uint32_t codes, std::uint32_t) {
    Loaded w;
#pragma unroll
    for (int j = 0; j < 4; ++j) w.steps[j] = shared_load16(codes + j * 512);
    return w;
  }
  static __device__ __forceinline__ Scales scales(const Loaded&) { return {}; }
  static __device__ __forceinline__ void fragment(std::uint32_t (&a)[4], const Loaded& w,
                                                  const Scales&, int step) {
    const uint4& v = w.steps[step];
    a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
  }
};

}  // namespace flotilla::backend::cuda
