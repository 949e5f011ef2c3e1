// The kernels of one instruction set, as plain functions over raw arrays. CpuBackend cuts the work
// into items and runs them on its threads; a kernel sees one item. The arithmetic of every kernel
// is stated in definition.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flotilla/backend/backend.h"
#include "flotilla/backend/cpu/packed_rows.h"

namespace flotilla::backend {

inline constexpr int kTileRows = 16;  // output rows handled together: one per lane
inline constexpr int kMaxPassRows =
    240;  // rows of x per pass: its slice of kBlockK and the results stay in L2
// Rows of x up to which expanding 4-bit weights anew for each panel is no loss.
inline constexpr int kMaxFusedRows = 32;
inline constexpr int kItemTiles = 4;  // most row tiles per work item
inline constexpr int kMaxHeadDim = 512;
inline constexpr int kAttentionRows = 16;  // query rows that share the pages of one item
inline constexpr std::size_t kScratchBytes = 320 * 1024;  // per thread, 64-byte aligned

// A stored matrix as the kernels see it. Alignment of the arrays does not matter.
struct WeightView {
  WeightFormat format = WeightFormat::kF32;
  int bits = 32;   // of one element
  int group = 64;  // k that share a scale; 64 for the dense formats (no scale)
  int n = 0;
  int k = 0;
  const std::byte* weight = nullptr;
  std::size_t row_bytes = 0;
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;
  std::size_t scale_row_bytes = 0;
  tensor::DType scale_type = tensor::DType::kBF16;
  // Affine 4-bit of group 64 only: see kPackedGroupBytes and PackedBundle. Or null.
  const std::byte* packed = nullptr;
};

// A packed group: bias and scale of 16 rows, then 8 chunks of 64 bytes (16 rows x 8 k, in the form
// that the instruction set likes: see its lanes_*.h). Rows beyond n repeat the last one.
inline constexpr std::size_t kPackedGroupBytes = 16 * 8 * 4 + 2 * 16 * 2;
// The groups of three neighbouring tiles alternate: [group][tile]. Three sums are then in flight
// for each value of x, while memory is read in the order of addresses. The one or two tiles that
// are left at the end are bundles of their own.
inline constexpr int kBundleTiles = 3;
struct PackedBundle {
  const std::byte* begin;
  int first_tile, num_tiles;
  [[gnu::always_inline]] const std::byte* group(int tile, int g) const {
    return begin + (static_cast<std::size_t>(g) * static_cast<std::size_t>(num_tiles) +
                    static_cast<std::size_t>(tile - first_tile)) *
                       kPackedGroupBytes;
  }
};
[[gnu::always_inline]] inline int num_tiles(const WeightView& w) {
  return (w.n + kTileRows - 1) / kTileRows;
}
[[gnu::always_inline]] inline PackedBundle bundle_of(const WeightView& w, const std::byte* packed,
                                                     int tile) {
  const int whole = num_tiles(w) / kBundleTiles * kBundleTiles;
  const int first = tile < whole ? tile / kBundleTiles * kBundleTiles : tile;
  return {packed + static_cast<std::size_t>(first) * static_cast<std::size_t>(w.k / 64) *
                       kPackedGroupBytes,
          first, tile < whole ? kBundleTiles : 1};
}
[[gnu::always_inline]] inline bool can_pack(const WeightView& w) {
  return w.format == WeightFormat::kAffine && w.bits == 4 && w.group == 64 &&
         (w.scale_type == tensor::DType::kBF16 || w.scale_type == tensor::DType::kF16);
}
inline std::size_t packed_bytes(const WeightView& w) {
  return static_cast<std::size_t>(num_tiles(w)) * static_cast<std::size_t>(w.k / 64) *
         kPackedGroupBytes;
}

// Query rows of one KV head and consecutive tokens of one sequence. Row r is query head first_head
// + r % num_heads of token r / num_heads.
struct AttentionItem {
  const float* q = nullptr;      // of the first token, all heads
  float* out = nullptr;          // likewise
  std::size_t token_stride = 0;  // floats between tokens in q and out
  int first_head = 0;
  int num_heads = 0;
  int num_tokens = 0;  // num_heads * num_tokens <= kAttentionRows
  int first_position = 0;
  int head_dim = 0;
  int window = 0;
  float scale = 1.0f;
  std::size_t k_offset = 0;  // of the KV head in a page
  std::size_t v_offset = 0;
  KvView kv;
};

struct CpuKernels {
  const char* name;

  // How linear() wants `rows` rows of x for this weight.
  RowScaling (*scaling_for)(const WeightView& w, int rows);

  // Row tiles [tile_begin, tile_end), kItemTiles at most, of y[m, n] for the panels [panel_begin,
  // panel_end) of x. Of packed weights whole bundles when x has kMaxFusedRows rows or less.
  void (*linear)(const WeightView& w, const PackedRows& x, int panel_begin, int panel_end,
                 int tile_begin, int tile_end, float* y, std::byte* scratch);
  // Fills `out` (packed_bytes(w)) for the row tiles [tile_begin, tile_end).
  void (*pack)(const WeightView& w, std::byte* out, int tile_begin, int tile_end);
  // out[k] = scale * row of the matrix.
  void (*embedding)(const WeightView& w, int row, float scale, float* out);

  void (*rms_norm)(const float* x, const float* weight, float eps, float* out, std::size_t rows,
                   std::size_t dim);
  void (*norm_add)(const float* x, const float* weight, float eps, float scale, float* residual,
                   std::size_t rows, std::size_t dim);
  void (*gelu_mul)(const float* gate, const float* up, float* out, std::size_t count);
  void (*softcap)(float* x, float cap, std::size_t count);
  // Rotates the first `num_pairs` pairs of each head of one token.
  void (*rope)(float* x, const float* cosines, const float* sines, int num_pairs, int num_heads,
               int head_dim);
  void (*attention)(const AttentionItem& item, std::byte* scratch);

  void (*exp)(const float* x, float* out, std::size_t count);
  void (*log)(const float* x, float* out, std::size_t count);
  void (*tanh)(const float* x, float* out, std::size_t count);
  float (*sum)(const float* x, std::size_t count);
  float (*max)(const float* x, std::size_t count);

  // Reads all bytes; the result only keeps the loop alive.
  std::uint32_t (*read)(const std::byte* data, std::size_t bytes);
};

// Null where this build or this processor lacks the instructions. kBest is the fastest that is
// there.
const CpuKernels* find_cpu_kernels(CpuTarget target);

}  // namespace flotilla::backend
