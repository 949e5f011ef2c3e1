// Any stored format, any number of rows: expand a block of weights once, use it for all rows of x.
#include "flotilla/backend/cpu/kernels/dequantize.h"
#include "flotilla/backend/cpu/kernels/linear.h"
#if defined(FLOTILLA_CPU_AVX2)
#include "flotilla/backend/cpu/kernels/placed_avx2.h"
#endif

namespace flotilla::backend::FLOTILLA_CPU_TARGET {
namespace {

constexpr int kMaxGroups = kBlockK / 16;  // nvfp4

// 16 rows x up to kBlockK weights, ready for use by any number of rows of x.
struct Tile {
  alignas(64) float w[(kBlockK + kValuePadding) * kLanes];
  alignas(64) float scales[(kMaxGroups + kValuePadding) * kLanes];
  alignas(64) float biases[(kMaxGroups + kValuePadding) * kLanes];
};
struct TiledScratch {
  alignas(64) std::uint32_t words[(kBlockK + kValuePadding) * kLanes];
  Tile tile;
  alignas(64) float c[kItemTiles * kMaxPassRows * kLanes];
};
static_assert(sizeof(TiledScratch) <= kScratchBytes);

using ExpandFn = void (*)(const WeightView& w, int tile, int k0, int len, TiledScratch& s);
using MicroFn = void (*)(const Tile& tile, const float* x, const float* sums, int groups, float* c);

// ---- expansion
// ------------------------------------------------------------------------------------------

template <class Code, int Bits>
FLOTILLA_INLINE inline void expand_weights(const WeightView& w, int tile, int k0, int len,
                                           TiledScratch& s) {
  const auto begin = static_cast<std::size_t>(k0) * Bits / 8;
  const auto bytes = static_cast<std::size_t>(min_int(len, w.k - k0)) * Bits / 8;
  const TileRows rows(w.weight, w.row_bytes, w.n, tile);
  // The next tile, in address order (see linear_fused.cc).
  const std::uintptr_t next = reinterpret_cast<std::uintptr_t>(w.weight) +
                              static_cast<std::uintptr_t>(tile + 1) * kTileRows * w.row_bytes +
                              begin * kTileRows;
  expand_values<Code, Bits>(rows, begin, bytes, len, next, s.words, s.tile.w);
}

template <int Bits>
void expand_affine(const WeightView& w, int tile, int k0, int len, TiledScratch& s) {
  expand_affine_scales(w.scales, w, tile, k0 / w.group, len / w.group, s.words, s.tile.scales);
  expand_affine_scales(w.biases, w, tile, k0 / w.group, len / w.group, s.words, s.tile.biases);
  center_biases(len / w.group, static_cast<float>(1 << (Bits - 1)), s.tile.scales, s.tile.biases);
  expand_weights<CenteredCode<Bits>, Bits>(w, tile, k0, len, s);
}

template <class Code, int Bits, class ScaleCode>
void expand_scaled(const WeightView& w, int tile, int k0, int len, TiledScratch& s) {
  expand_scales_as<ScaleCode, 8>(w.scales, w, tile, k0 / w.group, len / w.group, s.words,
                                 s.tile.scales);
  expand_weights<Code, Bits>(w, tile, k0, len, s);
}

template <class Code, int Bits>
void expand_dense(const WeightView& w, int tile, int k0, int len, TiledScratch& s) {
  for (int g = 0; g < len / w.group; ++g) store(s.tile.scales + g * kLanes, set1(1.0f));
  expand_weights<Code, Bits>(w, tile, k0, len, s);
}

template <bool Placed>  // for x that is scaled by place
FLOTILLA_INLINE inline void expand_chunk(const std::byte* chunk, float* out) {
#if defined(FLOTILLA_CPU_AVX2)
  if constexpr (Placed) {
    unroll<2>([&](auto half) FLOTILLA_INLINE {
      const I part = placed_part(chunk + half * 32);
      unroll<4>([&](auto k) FLOTILLA_INLINE {
        store(out + (half * 4 + k) * kLanes, placed_value<k>(part));
      });
    });
    return;
  }
#endif
  const I words = chunk_words(chunk);
  unroll<8>([&](auto k) FLOTILLA_INLINE { store(out + k * kLanes, word_value<k>(words)); });
}

template <bool Placed>
void expand_packed(const WeightView& w, int tile, int k0, int len, TiledScratch& s) {
  const bool is_f16 = w.scale_type == tensor::DType::kF16;
  const PackedBundle bundle = bundle_of(w, w.packed, tile);
  const int groups = len / 64;
  // The tile's next block, or the first one of a tile of the next item.
  const bool is_last = k0 + len == w.k;
  const int next_tile = is_last ? min_int(tile + kItemTiles, num_tiles(w) - 1) : tile;
  const PackedBundle next_bundle = bundle_of(w, w.packed, next_tile);
  const int next_group = is_last ? 0 : (k0 + len) / 64;
  float* out = s.tile.w;
  for (int g = 0; g < groups; ++g) {
    const std::byte* p = bundle.group(tile, k0 / 64 + g);
    const GroupScales scales = load_packed_scales(p, is_f16);
    store(s.tile.scales + g * kLanes, scales.scale);
    store(s.tile.biases + g * kLanes, fma(scales.scale, set1(8.0f), scales.bias));
    const std::byte* next = next_bundle.group(next_tile, next_group + g);
    prefetch_far(next);
    for (int j = 0; j < 8; ++j, out += 8 * kLanes) {
      prefetch_far(next + kPackedCodes + j * 64);
      expand_chunk<Placed>(p + kPackedCodes + j * 64, out);
    }
  }
}

// ---- products
// -------------------------------------------------------------------------------------------

// c[M][16] += groups [0, num) of the tile times x[k][M]; B groups at a time, see fused_groups().
template <int M, int G, bool HasBias, int B>
FLOTILLA_INLINE inline void micro_groups(const Tile& tile, int g0, int num, const float* x,
                                         const float* sums, float* c) {
  constexpr int kStep = B > 2 ? 4 : 8;
  for (int g = g0; g < g0 + num; g += B) {
    F acc[B][M];
    unroll<B * M>([&](auto i) FLOTILLA_INLINE { acc[i / M][i % M] = zero(); });
    const float* w = tile.w + g * G * kLanes;
    const float* xg = x + g * G * M;
    for (int k = 0; k < G; k += kStep) {
      unroll<kStep>([&](auto u) FLOTILLA_INLINE {
        unroll<B>([&](auto b) FLOTILLA_INLINE {
          const F q = load(w + (b * G + u) * kLanes);
          unroll<M>([&](auto m) FLOTILLA_INLINE {
            acc[b][m] = fma(q, broadcast(xg + (b * G + u) * M + m), acc[b][m]);
          });
        });
      });
      w += kStep * kLanes;
      xg += kStep * M;
    }
    asm volatile("" ::: "memory");  // or GCC carries c through the loop in registers that acc needs
    unroll<B>([&](auto b) FLOTILLA_INLINE {
      const F scale = load(tile.scales + (g + b) * kLanes);
      unroll<M>([&](auto m) FLOTILLA_INLINE {
        F total = load(c + m * kLanes);
        if constexpr (HasBias) {
          const F sum = broadcast(sums + (g + b) * M + m);
          total = fma(load(tile.biases + (g + b) * kLanes), sum, total);
        }
        store(c + m * kLanes, fma(scale, acc[b][m], total));
      });
    });
  }
}

template <int M, int G, bool HasBias>
void micro_kernel(const Tile& tile, const float* x, const float* sums, int groups, float* c) {
  constexpr int B = kTiledGroupsInFlight[M];
  const int whole = groups / B * B;
  micro_groups<M, G, HasBias, B>(tile, 0, whole, x, sums, c);
  if (B > 1 && whole < groups) {
    micro_groups<M, G, HasBias, 1>(tile, whole, groups - whole, x, sums, c);
  }
}

struct Format {
  ExpandFn expand;
  const MicroFn* micro;  // [kPanelRows + 1]
};
template <int G, bool HasBias>
struct MicroTable {
  static constexpr MicroFn kFns[kPanelRows + 1] = {nullptr,
                                                   micro_kernel<1, G, HasBias>,
                                                   micro_kernel<2, G, HasBias>,
                                                   micro_kernel<3, G, HasBias>,
                                                   micro_kernel<4, G, HasBias>,
                                                   micro_kernel<5, G, HasBias>,
                                                   micro_kernel<6, G, HasBias>};
};

ExpandFn affine_expansion(const WeightView& w, RowScaling scaling) {
  if (w.packed != nullptr) {
    return scaling == RowScaling::kByPlace ? expand_packed<true> : expand_packed<false>;
  }
  switch (w.bits) {
    case 2:
      return expand_affine<2>;
    case 3:
      return expand_affine<3>;
    case 4:
      return expand_affine<4>;
    case 5:
      return expand_affine<5>;
    case 6:
      return expand_affine<6>;
    default:
      return expand_affine<8>;
  }
}

Format format_of(const WeightView& w, RowScaling scaling) {
  switch (w.format) {
    case WeightFormat::kAffine:
      return {affine_expansion(w, scaling), w.group == 32   ? MicroTable<32, true>::kFns
                                            : w.group == 64 ? MicroTable<64, true>::kFns
                                                            : MicroTable<128, true>::kFns};
    case WeightFormat::kMxfp4:
      return {expand_scaled<E2m1Code, 4, E8m0Code>, MicroTable<32, false>::kFns};
    case WeightFormat::kMxfp8:
      return {expand_scaled<E4m3Code, 8, E8m0Code>, MicroTable<32, false>::kFns};
    case WeightFormat::kNvfp4:
      return {expand_scaled<E2m1Code, 4, E4m3Code>, MicroTable<16, false>::kFns};
    case WeightFormat::kF16:
      return {expand_dense<F16Code, 16>, MicroTable<64, false>::kFns};
    case WeightFormat::kBF16:
      return {expand_dense<Bf16Code, 16>, MicroTable<64, false>::kFns};
    default:
      return {expand_dense<F32Code, 32>, MicroTable<64, false>::kFns};
  }
}

}  // namespace

void linear_tiled(const WeightView& w, const PackedRows& x, int panel_begin, int panel_end,
                  int tile_begin, int tile_end, float* y, std::byte* scratch) {
  auto& s = *reinterpret_cast<TiledScratch*>(scratch);
  const Format format = format_of(w, x.scaling());
  const int m0 = x.panel_begin(panel_begin), rows = x.panel_begin(panel_end) - m0;
  const auto tile_floats = static_cast<std::size_t>(rows) * kLanes;
  __builtin_memset(s.c, 0,
                   sizeof(float) * static_cast<std::size_t>(tile_end - tile_begin) * tile_floats);
  for (int k0 = 0; k0 < x.k(); k0 += kBlockK) {
    const int len = min_int(kBlockK, x.k() - k0);
    for (int t = tile_begin; t < tile_end; ++t) {
      format.expand(w, t, k0, len, s);
      float* c = s.c + static_cast<std::size_t>(t - tile_begin) * tile_floats;
      for (int p = panel_begin; p < panel_end; ++p) {
        format.micro[x.panel_rows(p)](s.tile, x.block(p, k0), x.block_sums(p, k0), len / w.group,
                                      c + (x.panel_begin(p) - m0) * kLanes);
      }
    }
  }
  for (int m = 0; m < rows; ++m) {  // neighbouring tiles are neighbours in y
    float* out = y + static_cast<std::size_t>(m0 + m) * static_cast<std::size_t>(w.n);
    for (int t = tile_begin; t < tile_end; ++t) {
      const float* c = s.c + static_cast<std::size_t>(t - tile_begin) * tile_floats + m * kLanes;
      store_partial(out + t * kTileRows, load(c), w.n - t * kTileRows);
    }
  }
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
