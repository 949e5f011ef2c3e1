// One row of x times weights of any format: linear_fused.cc for those that have no packed form.
#include "flotilla/backend/cpu/kernels/linear.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {
namespace {

constexpr int kMaxGroups = kBlockK / 16;  // nvfp4

struct RowScratch {
  alignas(64) std::uint32_t words[(kBlockK + kValuePadding) * kLanes];
  alignas(64) std::uint32_t scale_words[(kMaxGroups + kValuePadding) * kLanes];
  alignas(64) float scales[(kMaxGroups + kValuePadding) * kLanes];
  alignas(64) float biases[(kMaxGroups + kValuePadding) * kLanes];
};
static_assert(sizeof(RowScratch) <= kScratchBytes);

// Values that are unrolled: they end at a word, and every group is a whole number of steps.
template <int Bits>
constexpr int kStep = Bits % 2 == 1   ? 32
                      : Bits % 4 != 0 ? 16
                                      : 8;

// Groups [g, g + B) of a block.
template <class Code, int Bits, int B>
FLOTILLA_INLINE inline void row_groups(const RowScratch& s, int g, int group, bool has_bias,
                                       std::uintptr_t ahead, const float* x, const float* sums,
                                       F& total) {
  constexpr int Step = kStep<Bits>, kStepWords = Step * Bits / 32;
  const int steps = group / Step;
  F acc[B];
  unroll<B>([&](auto b) FLOTILLA_INLINE { acc[b] = zero(); });
  for (int step = 0; step < steps; ++step) {
    unroll<Step>([&](auto j) FLOTILLA_INLINE {
      unroll<B>([&](auto b) FLOTILLA_INLINE {
        const int at = (g + b) * steps + step;
        if constexpr (j * Bits % 32 < Bits) {  // the first value of a word
          prefetch_far(reinterpret_cast<const void*>(
              ahead + static_cast<std::uintptr_t>(at * kStepWords + j * Bits / 32) * 64));
        }
        const F q = Code::decode(extract<j * Bits, Bits>(s.words + at * kStepWords * kLanes));
        acc[b] = fma(q, broadcast(x + at * Step + j), acc[b]);
      });
    });
  }
  unroll<B>([&](auto b) FLOTILLA_INLINE {
    const F scale = load(s.scales + (g + b) * kLanes);
    if (has_bias) total = fma(load(s.biases + (g + b) * kLanes), broadcast(sums + g + b), total);
    total = fma(scale, acc[b], total);
  });
}

template <class ScaleCode>
void expand_block_scales(const WeightView& w, int tile, int g0, int num, RowScratch& s) {
  if constexpr (std::is_void_v<ScaleCode>) {
    if (w.scales == nullptr) {  // dense
      for (int g = 0; g < num; ++g) store(s.scales + g * kLanes, set1(1.0f));
      return;
    }
    expand_affine_scales(w.scales, w, tile, g0, num, s.scale_words, s.scales);
    expand_affine_scales(w.biases, w, tile, g0, num, s.scale_words, s.biases);
    center_biases(num, static_cast<float>(1 << (w.bits - 1)), s.scales, s.biases);
  } else {
    expand_scales_as<ScaleCode, 8>(w.scales, w, tile, g0, num, s.scale_words, s.scales);
  }
}

template <class Code, int Bits, class ScaleCode = void>
void row_tiles(const WeightView& w, const PackedRows& x, int tile_begin, int tile_end, float* y,
               RowScratch& s) {
  constexpr int B = 2;  // independent chains, which hide the latency of FMA
  const bool has_bias = w.biases != nullptr;
  for (int t = tile_begin; t < tile_end; ++t) {
    const TileRows rows(w.weight, w.row_bytes, w.n, t);
    const std::uintptr_t next = reinterpret_cast<std::uintptr_t>(w.weight) +
                                static_cast<std::uintptr_t>(t + 1) * kTileRows * w.row_bytes;
    F total = zero();
    for (int k0 = 0; k0 < x.k(); k0 += kBlockK) {
      const int len = min_int(kBlockK, x.k() - k0), groups = len / w.group;
      const auto begin = static_cast<std::size_t>(k0) * Bits / 8;
      const auto bytes = static_cast<std::size_t>(min_int(len, w.k - k0)) * Bits / 8;
      gather_words(rows.row, begin, bytes, s.words);
      for (int i = static_cast<int>((bytes + 3) / 4); i < len * Bits / 32; ++i) {
        __builtin_memset(s.words + i * kLanes, 0, kLanes * sizeof(std::uint32_t));
      }
      expand_block_scales<ScaleCode>(w, t, k0 / w.group, groups, s);
      const float* xb = x.block(0, k0);
      const float* sb = x.block_sums(0, k0);
      const std::uintptr_t ahead = next + begin * kTileRows;
      int g = 0;
      for (; g + B <= groups; g += B) {
        row_groups<Code, Bits, B>(s, g, w.group, has_bias, ahead, xb, sb, total);
      }
      for (; g < groups; ++g) {
        row_groups<Code, Bits, 1>(s, g, w.group, has_bias, ahead, xb, sb, total);
      }
    }
    store_partial(y + t * kTileRows, total, w.n - t * kTileRows);
  }
}

using RowFn = void (*)(const WeightView&, const PackedRows&, int, int, float*, RowScratch&);

RowFn row_affine(int bits) {
  switch (bits) {
    case 2:
      return row_tiles<CenteredCode<2>, 2>;
    case 3:
      return row_tiles<CenteredCode<3>, 3>;
    case 4:
      return row_tiles<CenteredCode<4>, 4>;
    case 5:
      return row_tiles<CenteredCode<5>, 5>;
    case 6:
      return row_tiles<CenteredCode<6>, 6>;
    default:
      return row_tiles<CenteredCode<8>, 8>;
  }
}

RowFn row_of(const WeightView& w) {
  switch (w.format) {
    case WeightFormat::kAffine:
      return row_affine(w.bits);
    case WeightFormat::kMxfp4:
      return row_tiles<E2m1Code, 4, E8m0Code>;
    case WeightFormat::kMxfp8:
      return row_tiles<E4m3Code, 8, E8m0Code>;
    case WeightFormat::kNvfp4:
      return row_tiles<E2m1Code, 4, E4m3Code>;
    case WeightFormat::kF16:
      return row_tiles<F16Code, 16>;
    case WeightFormat::kBF16:
      return row_tiles<Bf16Code, 16>;
    default:
      return row_tiles<F32Code, 32>;
  }
}

}  // namespace

void linear_row(const WeightView& w, const PackedRows& x, int tile_begin, int tile_end, float* y,
                std::byte* scratch) {
  row_of(w)(w, x, tile_begin, tile_end, y, *reinterpret_cast<RowScratch*>(scratch));
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
