// What the two translation units of the linears share. See kernels.h.
#pragma once

#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/backend/cpu/kernels/dequantize.h"
#include "flotilla/backend/cpu/kernels/lanes.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {

// For weights for which can_pack() holds, at few rows of x: nibbles are expanded in registers and
// used at once for the rows of a panel.
void linear_fused(const WeightView& w, const PackedRows& x, int panel_begin, int panel_end,
                  int tile_begin, int tile_end, float* y, std::byte* scratch);
// Everything else: 16 rows x kBlockK weights are expanded to float32 in L1 and multiplied with all
// panels.
void linear_tiled(const WeightView& w, const PackedRows& x, int panel_begin, int panel_end,
                  int tile_begin, int tile_end, float* y, std::byte* scratch);

// The forms of CpuKernels::pack and ::embedding.
void pack_tiles(const WeightView& w, std::byte* out, int tile_begin, int tile_end);
void embedding_row(const WeightView& w, int row, float scale, float* out);

inline constexpr std::size_t kPackedScales = 512;  // offsets inside a packed group
inline constexpr std::size_t kPackedBiases = 544;
inline constexpr std::uintptr_t kPrefetchBytes = 8192;  // ahead, packed layout

// 16 scales or biases of a packed group.
FLOTILLA_INLINE inline F load_scale16(const std::byte* p, bool is_f16) {
  const I v = load_u16(p);
  return is_f16 ? F16Code::decode(v) : Bf16Code::decode(v);
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
