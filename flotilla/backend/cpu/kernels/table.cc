// The table of one instruction set.
#include "flotilla/backend/cpu/kernels/elementwise.h"
#include "flotilla/backend/cpu/kernels/linear.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {
namespace {

RowScaling scaling_for(const WeightView& w, int rows) {
  if (!can_pack(w)) return RowScaling::kNone;
  const bool placed =
      rows <= kMaxFusedRows ? rows <= kMaxPlacedRows : kExpandsPlaced && w.packed != nullptr;
  return placed ? RowScaling::kByPlace : RowScaling::kNone;
}

void linear(const WeightView& w, const PackedRows& x, int panel_begin, int panel_end,
            int tile_begin, int tile_end, float* y, std::byte* scratch) {
  if (x.m() <= kMaxFusedRows && can_pack(w)) {
    return linear_fused(w, x, panel_begin, panel_end, tile_begin, tile_end, y, scratch);
  }
  if (x.m() == 1) return linear_row(w, x, tile_begin, tile_end, y, scratch);
  linear_tiled(w, x, panel_begin, panel_end, tile_begin, tile_end, y, scratch);
}

#if defined(FLOTILLA_CPU_AVX512)
constexpr const char* kName = "AVX-512";
#elif defined(FLOTILLA_CPU_AVX2)
constexpr const char* kName = "AVX2";
#else
constexpr const char* kName = "portable";
#endif

}  // namespace

extern const CpuKernels kKernels;
const CpuKernels kKernels = {
    .name = kName,
    .scaling_for = scaling_for,
    .linear = linear,
    .pack = pack_tiles,
    .embedding = embedding_row,
    .rms_norm = rms_norm_rows,
    .norm_add = norm_add_rows,
    .gelu_mul = gelu_mul_array,
    .softcap = softcap_array,
    .rope = rope_token,
    .attention = attention_item,
    .exp = exp_array,
    .log = log_array,
    .tanh = tanh_array,
    .sum = sum_array,
    .max = max_array,
    .read = read_array,
};

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
