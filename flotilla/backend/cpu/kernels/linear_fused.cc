// Few rows of x times 4-bit weights: the decode path, bound by memory. Works on groups of 16 rows x
// 64 k, either packed at load or transposed on the fly from the stored form, 512 k at a time.
#include "flotilla/backend/cpu/kernels/dequantize.h"
#include "flotilla/backend/cpu/kernels/linear.h"
#if defined(FLOTILLA_CPU_AVX2)
#include "flotilla/backend/cpu/kernels/few_rows_avx2.h"
#endif

namespace flotilla::backend::FLOTILLA_CPU_TARGET {
namespace {

constexpr int kGroup = 64;
constexpr int kBatchGroups = 8;
constexpr int kGroupWords = 8 * kLanes;

struct FusedScratch {
  alignas(64) std::uint32_t words[kBatchGroups * kGroupWords];
  alignas(64) std::uint32_t scale_words[kBatchGroups / 2 * kLanes];
  alignas(64) float scales[(kBatchGroups + kValuePadding) * kLanes];
  alignas(64) float biases[(kBatchGroups + kValuePadding) * kLanes];
};
static_assert(sizeof(FusedScratch) <= kScratchBytes);

// A source gives, for the groups of one batch, chunks (8 of 8 k each), scales and biases. It may
// have several tiles whose groups alternate (PackedBundle).
// prefetch<N>(unit, j), called for j = 0 .. 7 between the arithmetic of N groups, of which `unit`
// came before in the order of use, asks for what comes some KiB later: a line or two at a time, as
// bursts would stall the loads behind them, and in the order of addresses, as the memory's own
// prefetching then joins in. Addresses may run beyond the end, which is harmless.
template <bool IsF16, int NumTiles>  // IsF16: the type of the scales, else bfloat16
struct PackedBatch {
  [[maybe_unused]] static constexpr int kTileStride = kPackedGroupBytes;
  [[maybe_unused]] static constexpr int kGroupStride = NumTiles * kTileStride;
  const std::byte* base;
  std::uintptr_t ahead;
  FLOTILLA_INLINE const std::byte* chunk(int tile, int g, int j) const {
    return group(tile, g) + kPackedCodes + j * 64;
  }
  FLOTILLA_INLINE GroupScales scales(int tile, int g) const {
    return load_packed_scales(group(tile, g), IsF16);
  }
  FLOTILLA_INLINE const std::byte* group(int tile, int g) const {
    return base + static_cast<std::size_t>(g * NumTiles + tile) * kPackedGroupBytes;
  }
  template <int N>
  FLOTILLA_INLINE void prefetch(int unit, int j) const {
    const std::uintptr_t p = ahead + static_cast<std::uintptr_t>(unit) * kPackedGroupBytes +
                             static_cast<std::uintptr_t>(j) * (N * 64);
    unroll<N>([&](auto i) FLOTILLA_INLINE { ask(p + i * 64); });
    if (j == 7) unroll<N>([&](auto i) FLOTILLA_INLINE { ask(p + (N + i) * 64); });
  }
  FLOTILLA_INLINE static void ask(std::uintptr_t p) {
    prefetch_stream(reinterpret_cast<const void*>(p));
  }
};
template <bool IsF16, int NumTiles>
struct PackedSource {
  [[maybe_unused]] static constexpr int kMostGroups = 1 << 30;  // in a batch
  [[maybe_unused]] static constexpr int kNumTiles = NumTiles;
  const WeightView& w;
  FLOTILLA_INLINE PackedBatch<IsF16, NumTiles> batch(int tile, int g0, int, FusedScratch&) const {
    const std::byte* base = bundle_of(w, w.packed, tile).group(tile, g0);
    return {base, reinterpret_cast<std::uintptr_t>(base) + kStreamBytes};
  }
};

struct StoredBatch {
  [[maybe_unused]] static constexpr int kTileStride = 0;  // there is one
  [[maybe_unused]] static constexpr int kGroupStride = kGroupWords * 4;
  const FusedScratch& s;
  std::uintptr_t q_ahead, scales_ahead, biases_ahead;
  FLOTILLA_INLINE const std::byte* chunk(int, int g, int j) const {
    return reinterpret_cast<const std::byte*>(s.words + g * kGroupWords + j * kLanes);
  }
  FLOTILLA_INLINE GroupScales scales(int, int g) const {
    return {load(s.scales + g * kLanes), load(s.biases + g * kLanes)};
  }
  template <int N>
  FLOTILLA_INLINE void prefetch(int g, int j) const {
    const std::uintptr_t p =
        q_ahead + static_cast<std::uintptr_t>(g) * 512 + static_cast<std::uintptr_t>(j) * (N * 64);
    unroll<N>([&](auto i) FLOTILLA_INLINE {
      prefetch_far(reinterpret_cast<const void*>(p + i * 64));
      const auto at = static_cast<std::uintptr_t>(g + i) * 32;
      if (j == 0 && at % 64 == 0) {
        prefetch_far(reinterpret_cast<const void*>(scales_ahead + at));
        prefetch_far(reinterpret_cast<const void*>(biases_ahead + at));
      }
    });
  }
};
struct StoredSource {
  [[maybe_unused]] static constexpr int kMostGroups = kBatchGroups;
  [[maybe_unused]] static constexpr int kNumTiles = 1;
  const WeightView& w;
  // The 16 rows of a tile are one contiguous piece of memory. The next tile is asked for line by
  // line in address order, which the memory likes much better than the order of use; it is too far
  // ahead for L1.
  inline StoredBatch batch(int tile, int g0, int num, FusedScratch& s) const {
    const auto g = static_cast<std::size_t>(g0), count = static_cast<std::size_t>(num);
    const TileRows q(w.weight, w.row_bytes, w.n, tile);
    gather_words(q.row, g * 32, count * 32, s.words);
    for (int i = 0; i < num * 8; ++i) make_chunk(s.words + i * kLanes);
    const TileRows scales(w.scales, w.scale_row_bytes, w.n, tile);
    const TileRows biases(w.biases, w.scale_row_bytes, w.n, tile);
    expand_scales(scales, g, count, s.scale_words, s.scales);
    expand_scales(biases, g, count, s.scale_words, s.biases);
    const auto next = static_cast<std::uintptr_t>(tile + 1) * kTileRows;
    return {s, reinterpret_cast<std::uintptr_t>(w.weight) + next * w.row_bytes + g * 512,
            reinterpret_cast<std::uintptr_t>(w.scales) + next * w.scale_row_bytes + g * 32,
            reinterpret_cast<std::uintptr_t>(w.biases) + next * w.scale_row_bytes + g * 32};
  }
  FLOTILLA_INLINE void expand_scales(const TileRows& rows, std::size_t g0, std::size_t num,
                                     std::uint32_t* words, float* out) const {
    gather_words(rows.row, g0 * 2, num * 2, words);
    const bool is_f16 = w.scale_type == tensor::DType::kF16;
    for (std::size_t i = 0; i < (num + 1) / 2; ++i) {
      const I pair = load_int(words + i * kLanes);
      const I low = pair & set1_int(0xffffu), high = shift_right<16>(pair);
      store(out + 2 * i * kLanes, is_f16 ? F16Code::decode(low) : Bf16Code::decode(low));
      store(out + (2 * i + 1) * kLanes, is_f16 ? F16Code::decode(high) : Bf16Code::decode(high));
    }
  }
};

// What follows the products of groups [g, g + B) of T tiles: added to total[tile][row] in group
// order.
template <int M, int T, int B, class Batch>
FLOTILLA_INLINE inline void add_groups(const Batch& batch, int tile, int g, const float* sums,
                                       const F (&acc)[T * B][M], F (*total)[M]) {
  unroll<T * B>([&](auto i) FLOTILLA_INLINE {
    constexpr int t = i / B, c = i % B;
    const GroupScales of = batch.scales(tile + t, g + c);
    const F bias = fma(of.scale, set1(8.0f), of.bias);
    unroll<M>([&](auto m) FLOTILLA_INLINE {
      F& sum = total[tile + t][m];
      sum = fma(of.scale, acc[i][m], fma(bias, broadcast(sums + (g + c) * M + m), sum));
    });
  });
}

// Groups [g, g + B) of T tiles against M rows of x: their accumulators are independent, which hides
// the latency of FMA when M is small. `unit` groups of the batch came before.
template <int M, int T, int B, class Batch>
FLOTILLA_INLINE inline void multiply_groups(const Batch& batch, int tile, int g, int unit,
                                            const float* x, const float* sums, F (*total)[M]) {
  F acc[T * B][M];
  unroll<T * B * M>([&](auto i) FLOTILLA_INLINE { acc[i / M][i % M] = zero(); });
  for (int j = 0; j < 8; ++j) {
    batch.template prefetch<T * B>(unit, j);
    I words[T * B];
    unroll<T * B>([&](auto i) FLOTILLA_INLINE {
      words[i] = chunk_words(batch.chunk(tile + i / B, g + i % B, j));
    });
    // Chains are interleaved, as the core's window is too short for longer runs.
    unroll<8>([&](auto k) FLOTILLA_INLINE {
      unroll<T * B>([&](auto i) FLOTILLA_INLINE {
        const float* xk = x + ((g + i % B) * kGroup + j * 8 + k) * M;
        const F q = word_value<k>(words[i]);
        unroll<M>([&](auto m)
                      FLOTILLA_INLINE { acc[i][m] = fma(q, broadcast(xk + m), acc[i][m]); });
      });
    });
  }
  add_groups<M, T, B>(batch, tile, g, sums, acc, total);
}

// Groups [g, g + num) of N tiles, B of each of T tiles at a time.
template <int M, int N, int T, int B, class Batch>
FLOTILLA_INLINE inline void fused_groups(const Batch& batch, int g, int num, const float* x,
                                         const float* sums, F (&total)[N][M]) {
  const int end = g + num;
  for (; g + B <= end; g += B) {
    unroll<N / T>([&](auto i) FLOTILLA_INLINE {
      multiply_groups<M, T, B>(batch, i * T, g, g * N + i * T * B, x, sums, total);
    });
  }
  if constexpr (B > 1) {
    for (; g < end; ++g) {
      unroll<N / T>([&](auto i) FLOTILLA_INLINE {
        multiply_groups<M, T, 1>(batch, i * T, g, g * N + i * T, x, sums, total);
      });
    }
  }
}

#if defined(FLOTILLA_CPU_AVX2)
// The same, x being scaled by place. Returns the first group that is left.
template <int M, int N, int B, class Batch>
FLOTILLA_INLINE inline int placed_groups(const Batch& batch, int g, int end, const float* x,
                                         const float* sums, F (&total)[N][M]) {
  for (; g + B <= end; g += B) {
    unroll<N>([&](auto tile) FLOTILLA_INLINE {
      F acc[B][M];
      multiply_placed<Batch::kGroupStride>(
          batch.chunk(tile, g, 0), x + g * kGroup * M,
          [&](int j) FLOTILLA_INLINE { batch.template prefetch<B>(g * N + tile * B, j); }, acc);
      add_groups<M, 1, B>(batch, tile, g, sums, acc, total);
    });
  }
  return g;
}
template <int M, int N, class Batch>
FLOTILLA_INLINE inline void placed_run(const Batch& batch, int num, const float* x,
                                       const float* sums, F (&total)[N][M]) {
  int g = 0;
  if constexpr (M == 1 && N == 3) {
    for (; g < num; ++g) {
      F acc[3][1];
      multiply_tiles<Batch::kTileStride>(
          batch.chunk(0, g, 0), x + g * kGroup,
          [&](int j) FLOTILLA_INLINE { batch.template prefetch<3>(g * N, j); }, acc);
      add_groups<M, 3, 1>(batch, 0, g, sums, acc, total);
    }
    return;
  }
  if constexpr (M == 1) {
    // A single group at the end would be slow.
    g = placed_groups<M, N, 3>(batch, g, num % 3 == 1 ? num - 4 : num, x, sums, total);
  }
  if constexpr (M <= 2) g = placed_groups<M, N, 2>(batch, g, num, x, sums, total);
  placed_groups<M, N, 1>(batch, g, num, x, sums, total);
}
#endif

// Row tile `t`, or the bundle that begins there, against panel p of x, which has M rows.
template <int M, bool Placed, class Source>
void fused_tile(const Source& source, const PackedRows& x, int p, int t, float* y,
                FusedScratch& scratch) {
  constexpr int N = Source::kNumTiles, T = N == 1 ? 1 : kTilesInFlight[M];
  constexpr int B = T == 1 ? kGroupsInFlight[M] : kBundleGroupsInFlight[M];
  constexpr int kBlockGroups = kBlockK / kGroup;
  const int n = source.w.n, groups = source.w.k / kGroup;
  F total[N][M];
  unroll<N * M>([&](auto i) FLOTILLA_INLINE { total[i / M][i % M] = zero(); });
  for (int g0 = 0; g0 < groups; g0 += kBatchGroups) {
    const int num = min_int(Placed ? Source::kMostGroups : kBatchGroups, groups - g0);
    const auto batch = source.batch(t, g0, num, scratch);
#if defined(FLOTILLA_CPU_AVX2)
    if constexpr (Placed) {  // a single panel, whose blocks are one piece
      placed_run<M, N>(batch, num, x.block(p, g0 * kGroup), x.block_sums(p, g0 * kGroup), total);
      if (num == groups) break;
      continue;
    }
#endif
    for (int g = 0; g < num; g += kBlockGroups) {  // x comes in blocks of kBlockK
      const int len = min_int(kBlockGroups, num - g);
      const float* xg = x.block(p, (g0 + g) * kGroup) - g * kGroup * M;
      const float* sg = x.block_sums(p, (g0 + g) * kGroup) - g * M;
      fused_groups<M, N, T, B>(batch, g, len, xg, sg, total);
    }
  }
  for (int tile = 0; tile < N; ++tile) {
    const int row = (t + tile) * kTileRows;
    float* out = y + static_cast<std::size_t>(x.panel_begin(p)) * static_cast<std::size_t>(n) + row;
    unroll<M>([&](auto m) FLOTILLA_INLINE {
      store_partial(out + static_cast<std::size_t>(m) * static_cast<std::size_t>(n), total[tile][m],
                    n - row);
    });
  }
}

template <class Source>
void fused_tiles(const Source& source, const PackedRows& x, int panel_begin, int panel_end,
                 int tile_begin, int tile_end, float* y, FusedScratch& s) {
  const bool placed = x.scaling() == RowScaling::kByPlace;
  for (int t = tile_begin; t < tile_end; t += Source::kNumTiles) {
    for (int p = panel_begin; p < panel_end; ++p) {  // the tile is in the cache from the second on
      const int rows = x.panel_rows(p);
      if constexpr (kMaxPlacedRows > 0) {
        if (placed) {
          switch (rows) {
            case 1:
              fused_tile<1, true>(source, x, p, t, y, s);
              break;
            case 2:
              fused_tile<2, true>(source, x, p, t, y, s);
              break;
            case 3:
              fused_tile<3, true>(source, x, p, t, y, s);
              break;
            default:
              fused_tile<4, true>(source, x, p, t, y, s);
              break;
          }
          continue;
        }
      }
      switch (rows) {
        case 1:
          fused_tile<1, false>(source, x, p, t, y, s);
          break;
        case 2:
          fused_tile<2, false>(source, x, p, t, y, s);
          break;
        case 3:
          fused_tile<3, false>(source, x, p, t, y, s);
          break;
        case 4:
          fused_tile<4, false>(source, x, p, t, y, s);
          break;
        case 5:
          fused_tile<5, false>(source, x, p, t, y, s);
          break;
        default:
          fused_tile<6, false>(source, x, p, t, y, s);
          break;
      }
    }
  }
}

template <bool IsF16>
void fused_packed(const WeightView& w, const PackedRows& x, int panel_begin, int panel_end,
                  int tile_begin, int tile_end, float* y, FusedScratch& s) {
  const int bundled = num_tiles(w) / kBundleTiles * kBundleTiles;
  const int middle = tile_end < bundled ? tile_end : tile_begin > bundled ? tile_begin : bundled;
  fused_tiles(PackedSource<IsF16, kBundleTiles>{w}, x, panel_begin, panel_end, tile_begin, middle,
              y, s);
  fused_tiles(PackedSource<IsF16, 1>{w}, x, panel_begin, panel_end, middle, tile_end, y, s);
}

}  // namespace

void linear_fused(const WeightView& w, const PackedRows& x, int panel_begin, int panel_end,
                  int tile_begin, int tile_end, float* y, std::byte* scratch) {
  auto& s = *reinterpret_cast<FusedScratch*>(scratch);
  if (w.packed == nullptr) {
    return fused_tiles(StoredSource{w}, x, panel_begin, panel_end, tile_begin, tile_end, y, s);
  }
  const auto run = w.scale_type == tensor::DType::kF16 ? fused_packed<true> : fused_packed<false>;
  run(w, x, panel_begin, panel_end, tile_begin, tile_end, y, s);
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
