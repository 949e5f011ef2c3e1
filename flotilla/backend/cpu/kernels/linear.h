// What the translation units of the linears share. See kernels.h.
#pragma once

#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/backend/cpu/kernels/dequantize.h"
#include "flotilla/backend/cpu/kernels/lanes.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {

// For weights for which can_pack() holds, at few rows of x: nibbles are expanded in registers and
// used at once for the rows of a panel.
void linear_fused(const WeightView& w, const PackedRows& x, int panel_begin, int panel_end,
                  int tile_begin, int tile_end, float* y, std::byte* scratch);
// Any format at one row of x: values are used in the register in which they were extracted.
void linear_row(const WeightView& w, const PackedRows& x, int tile_begin, int tile_end, float* y,
                std::byte* scratch);
// Everything else: 16 rows x kBlockK weights are expanded to float32 in L1 and multiplied with all
// panels.
void linear_tiled(const WeightView& w, const PackedRows& x, int panel_begin, int panel_end,
                  int tile_begin, int tile_end, float* y, std::byte* scratch);

// The forms of CpuKernels::pack and ::embedding.
void pack_tiles(const WeightView& w, std::byte* out, int tile_begin, int tile_end);
void embedding_row(const WeightView& w, int row, float scale, float* out);

// Offsets inside a packed group. Bias and scale of a row share a word, the scale on top: bfloat16
// of 16 rows then becomes float32 with one instruction a vector.
inline constexpr std::size_t kPackedScales = 0;
inline constexpr std::size_t kPackedCodes = 64;

struct GroupScales {  // of 16 rows
  F scale, bias;
};
FLOTILLA_INLINE inline GroupScales load_packed_scales(const std::byte* group, bool is_f16) {
  const I words = load_int(group + kPackedScales);
  if (is_f16) {
    return {F16Code::decode(shift_right<16>(words)),
            F16Code::decode(words & set1_int(0x0000ffffu))};
  }
  return {as_float(words & set1_int(0xffff0000u)), as_float(shift_left<16>(words))};
}

// Scales of groups [g0, g0 + num) of a tile as float32: out[group][16].
template <class Code, int Bits>
FLOTILLA_INLINE inline void expand_scales_as(const std::byte* base, const WeightView& w, int tile,
                                             int g0, int num, std::uint32_t* words, float* out) {
  const TileRows rows(base, w.scale_row_bytes, w.n, tile);
  constexpr std::size_t kBytes = Bits / 8;
  expand_values<Code, Bits>(rows, static_cast<std::size_t>(g0) * kBytes,
                            static_cast<std::size_t>(num) * kBytes, num, 0, words, out);
}

inline void expand_affine_scales(const std::byte* base, const WeightView& w, int tile, int g0,
                                 int num, std::uint32_t* words, float* out) {
  switch (w.scale_type) {
    case tensor::DType::kF32:
      return expand_scales_as<F32Code, 32>(base, w, tile, g0, num, words, out);
    case tensor::DType::kF16:
      return expand_scales_as<F16Code, 16>(base, w, tile, g0, num, words, out);
    default:
      return expand_scales_as<Bf16Code, 16>(base, w, tile, g0, num, words, out);
  }
}

// Affine codes are taken less `center`, so the biases are those of the center (see definition.h).
FLOTILLA_INLINE inline void center_biases(int num, float center, const float* scales,
                                          float* biases) {
  for (int g = 0; g < num; ++g) {
    float* bias = biases + g * kLanes;
    store(bias, fma(load(scales + g * kLanes), set1(center), load(bias)));
  }
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
