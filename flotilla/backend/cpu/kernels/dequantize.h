// Stored weights to float32 lanes, a lane being a row. See kernels.h and lanes.h.
#pragma once

#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/backend/cpu/kernels/lanes.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {

// The elements of a stored matrix, given as integers, become float32 without rounding.

// An affine code less the middle of its range.
template <int Bits>
struct CenteredCode {
  FLOTILLA_INLINE static F decode(I v) {
    return to_float(v) - set1(static_cast<float>(1 << (Bits - 1)));
  }
};
struct E2m1Code {  // low four bits
  FLOTILLA_INLINE static F decode(I v) {
    alignas(32) static constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f,
                                                         2.0f, 3.0f, 4.0f, 6.0f};
    const I sign = shift_left<28>(v & set1_int(8));
    return as_float(as_int(lookup8(kMagnitudes, v)) | sign);
  }
};
struct E4m3Code {  // low eight bits
  FLOTILLA_INLINE static F decode(I v) {
    const I magnitude = v & set1_int(0x7f);
    const I sign = shift_left<24>(v & set1_int(0x80));
    const F value = as_float(shift_left<20>(magnitude)) * set1(0x1p120f);
    const F nan = as_float(set1_int(0x7fc00000u));
    return as_float(as_int(select(equal(magnitude, set1_int(0x7f)), nan, value)) | sign);
  }
};
struct E8m0Code {
  FLOTILLA_INLINE static F decode(I v) {
    const F value = as_float(shift_left<23>(v));
    const F lowest = as_float(set1_int(0x00400000u));
    const F nan = as_float(set1_int(0x7fc00000u));
    return select(equal(v, set1_int(0)), lowest, select(equal(v, set1_int(255)), nan, value));
  }
};
struct Bf16Code {
  FLOTILLA_INLINE static F decode(I v) { return as_float(shift_left<16>(v)); }
};
struct F16Code {
  FLOTILLA_INLINE static F decode(I v) {
    const I sign = shift_left<16>(v & set1_int(0x8000u));
    const I magnitude = v & set1_int(0x7fffu);
    const F value = as_float(shift_left<13>(magnitude)) * set1(0x1p112f);
    const I exponent = v & set1_int(0x7c00u);
    const F special = as_float(shift_left<13>(magnitude) | set1_int(0x7f800000u));
    const F unsigned_value = select(equal(exponent, set1_int(0x7c00u)), special, value);
    return as_float(as_int(unsigned_value) | sign);
  }
};
struct F32Code {
  FLOTILLA_INLINE static F decode(I v) { return as_float(v); }
};

// Bits [Offset, Offset + Bits) of sixteen bit streams, given as words [word][16].
template <int Offset, int Bits>
FLOTILLA_INLINE inline I extract(const std::uint32_t* words) {
  constexpr int kWord = Offset / 32, kShift = Offset % 32;
  I v = shift_right<kShift>(load_int(words + kWord * kLanes));
  if constexpr (kShift + Bits > 32) {
    v = v | shift_left<32 - kShift>(load_int(words + (kWord + 1) * kLanes));
  }
  if constexpr (kShift + Bits != 32) v = v & set1_int((1u << Bits) - 1u);
  return v;
}

// The byte rows of one tile; rows beyond the last repeat it.
struct TileRows {
  const std::byte* row[kTileRows];
  FLOTILLA_INLINE TileRows(const std::byte* base, std::size_t row_bytes, int n, int tile) {
    for (int r = 0; r < kTileRows; ++r) {
      row[r] = base + static_cast<std::size_t>(min_int(tile * kTileRows + r, n - 1)) * row_bytes;
    }
  }
};

// `count` values of Bits bits each, from byte `at` of the rows on: out[value][16]. `words` is room
// for the transposed words; both arrays have room for kValuePadding values more. `ahead`, unless 0,
// is an address to prefetch from, a line for each line consumed: bursts of prefetches would stall
// the loads behind them.
inline constexpr int kValuePadding = 32;
template <class Code, int Bits>
inline void expand_values(const TileRows& rows, std::size_t at, std::size_t num_bytes, int count,
                          std::uintptr_t ahead, std::uint32_t* words, float* out) {
  gather_words(rows.row, at, num_bytes, words);
  const int chunks = (count + 31) / 32;
  const auto have = static_cast<int>((num_bytes + 3) / 4);
  for (int i = have; i < chunks * Bits; ++i) {
    __builtin_memset(words + i * kLanes, 0, kLanes * sizeof(std::uint32_t));
  }
  for (int c = 0; c < chunks; ++c) {
    unroll<32>([&](auto j) FLOTILLA_INLINE {
      if constexpr (j * Bits % 32 < Bits) {  // the first value of a word
        if (ahead != 0) prefetch_far(reinterpret_cast<const void*>(ahead + j * Bits / 32 * 64));
      }
      store(out + (c * 32 + j) * kLanes, Code::decode(extract<j * Bits, Bits>(words)));
    });
    words += Bits * kLanes;
    if (ahead != 0) ahead += Bits * 64;
  }
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
