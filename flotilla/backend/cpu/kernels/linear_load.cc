// What happens to weights outside of products: packing at load, rows of an embedding table.
#include "flotilla/backend/cpu/kernels/linear.h"

namespace flotilla::backend::FLOTILLA_CPU_TARGET {
namespace {

FLOTILLA_INLINE inline float decode_one(I v, F (*decode)(I)) {
  alignas(64) float t[kLanes];
  store(t, decode(v));
  return t[0];
}
template <class Code>
FLOTILLA_INLINE inline float decode_code(std::uint32_t code) {
  return decode_one(set1_int(code), [](I v) { return Code::decode(v); });
}

FLOTILLA_INLINE inline std::uint32_t load_bits(const std::byte* row, std::size_t bit, int bits) {
  // Byte-wise, so that nothing beyond the row is read.
  std::uint32_t v = 0;
  const std::size_t first = bit / 8, last = (bit + static_cast<std::size_t>(bits) - 1) / 8;
  for (std::size_t b = first; b <= last; ++b) {
    v |= static_cast<std::uint32_t>(row[b]) << (8 * (b - first));
  }
  v >>= bit % 8;
  return bits == 32 ? v : v & ((1u << bits) - 1u);
}

FLOTILLA_INLINE inline float load_scale(const std::byte* row, std::size_t group,
                                        tensor::DType type) {
  if (type == tensor::DType::kF32) {
    return decode_code<F32Code>(load_bits(row, group * 32, 32));
  }
  const std::uint32_t v = load_bits(row, group * 16, 16);
  return type == tensor::DType::kF16 ? decode_code<F16Code>(v) : decode_code<Bf16Code>(v);
}

template <class Code, class ScaleCode>
FLOTILLA_INLINE inline void scaled_row(const WeightView& w, const std::byte* weight,
                                       const std::byte* scales, float scale, float* out) {
  const auto bits = static_cast<std::size_t>(w.bits);
  float group_scale = 0.0f;
  for (int k = 0; k < w.k; ++k) {
    if (k % w.group == 0) {
      group_scale = decode_code<ScaleCode>(static_cast<std::uint32_t>(scales[k / w.group]));
    }
    const float v =
        decode_code<Code>(load_bits(weight, static_cast<std::size_t>(k) * bits, w.bits));
    out[k] = v * group_scale * scale;
  }
}

template <class Code>
FLOTILLA_INLINE inline void dense_row(const WeightView& w, const std::byte* weight, float scale,
                                      float* out) {
  const auto bits = static_cast<std::size_t>(w.bits);
  for (int k = 0; k < w.k; ++k) {
    out[k] =
        decode_code<Code>(load_bits(weight, static_cast<std::size_t>(k) * bits, w.bits)) * scale;
  }
}

void packed_row(const WeightView& w, std::size_t row, float scale, float* out) {
  const std::size_t lane = row % kTileRows;
  const auto tile = static_cast<int>(row / kTileRows);
  const PackedBundle bundle = bundle_of(w, w.packed, tile);
  for (int g = 0; g < w.k / 64; ++g, out += 64) {
    const std::byte* p = bundle.group(tile, g);
    const float s = load_scale(p + kPackedScales, 2 * lane + 1, w.scale_type);
    const float b = load_scale(p + kPackedScales, 2 * lane, w.scale_type);
    for (std::size_t k = 0; k < 64; ++k) {
      const std::uint32_t q = chunk_code(p + kPackedCodes + k / 8 * 64, lane, k % 8);
      out[k] = __builtin_fmaf(static_cast<float>(q), s, b) * scale;
    }
  }
}

}  // namespace

void embedding_row(const WeightView& w, int row, float scale, float* out) {
  const auto r = static_cast<std::size_t>(row);
  if (w.packed != nullptr) return packed_row(w, r, scale, out);
  const std::byte* weight = w.weight + r * w.row_bytes;
  const std::byte* scales = w.scales + r * w.scale_row_bytes;
  switch (w.format) {
    case WeightFormat::kAffine: {
      const std::byte* biases = w.biases + r * w.scale_row_bytes;
      const auto bits = static_cast<std::size_t>(w.bits);
      for (int g = 0; g < w.k / w.group; ++g) {
        const float s = load_scale(scales, static_cast<std::size_t>(g), w.scale_type);
        const float b = load_scale(biases, static_cast<std::size_t>(g), w.scale_type);
        for (int k = g * w.group; k < (g + 1) * w.group; ++k) {
          const std::uint32_t q = load_bits(weight, static_cast<std::size_t>(k) * bits, w.bits);
          out[k] = __builtin_fmaf(static_cast<float>(q), s, b) * scale;
        }
      }
      return;
    }
    case WeightFormat::kMxfp4:
      return scaled_row<E2m1Code, E8m0Code>(w, weight, scales, scale, out);
    case WeightFormat::kMxfp8:
      return scaled_row<E4m3Code, E8m0Code>(w, weight, scales, scale, out);
    case WeightFormat::kNvfp4:
      return scaled_row<E2m1Code, E4m3Code>(w, weight, scales, scale, out);
    case WeightFormat::kF16:
      return dense_row<F16Code>(w, weight, scale, out);
    case WeightFormat::kBF16:
      return dense_row<Bf16Code>(w, weight, scale, out);
    case WeightFormat::kF32:
      return dense_row<F32Code>(w, weight, scale, out);
  }
}

void pack_tiles(const WeightView& w, std::byte* out, int tile_begin, int tile_end) {
  const auto groups = static_cast<std::size_t>(w.k / 64);
  for (int t = tile_begin; t < tile_end; ++t) {
    const TileRows q(w.weight, w.row_bytes, w.n, t);
    const TileRows scales(w.scales, w.scale_row_bytes, w.n, t);
    const TileRows biases(w.biases, w.scale_row_bytes, w.n, t);
    const std::uintptr_t next = reinterpret_cast<std::uintptr_t>(w.weight) +
                                static_cast<std::uintptr_t>(t + 1) * kTileRows * w.row_bytes;
    const PackedBundle bundle = bundle_of(w, out, t);
    for (std::size_t g = 0; g < groups; ++g) {
      auto* o = const_cast<std::byte*>(bundle.group(t, static_cast<int>(g)));
      unroll<8>([&](auto i) FLOTILLA_INLINE {
        prefetch_far(reinterpret_cast<const void*>(next + g * 512 + i * 64));
      });
      alignas(64) std::uint32_t words[8 * kLanes];
      gather_words(q.row, g * 32, 32, words);
      for (int i = 0; i < 8; ++i) make_chunk(words + i * kLanes);
      __builtin_memcpy(o + kPackedCodes, words, sizeof words);
      for (std::size_t r = 0; r < kTileRows; ++r) {
        __builtin_memcpy(o + kPackedScales + r * 4, biases.row[r] + g * 2, 2);
        __builtin_memcpy(o + kPackedScales + r * 4 + 2, scales.row[r] + g * 2, 2);
      }
    }
  }
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
