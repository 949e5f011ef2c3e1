// 4-bit codes to float32 at their place in a word, with AVX2.
#pragma once

#include "flotilla/backend/cpu/kernels/lanes_avx2.h"

namespace flotilla::backend::cpu_avx2 {

// A code is left where it stands among the four of a part: as low bits of a float in [2^11, 2^12)
// it is code * 16^(K - 3), and less the center (code - 8) * 16^(K - 3), exactly. x has the opposite
// factor (RowScaling::kByPlace), so products and sums have the bits of the definition. That takes a
// mask and a subtraction for 8 weights, and an unpacking for 32.
inline constexpr float kPlaces[4] = {0x1p-12f, 0x1p-8f, 0x1p-4f, 1.0f};
struct alignas(32) PartConstants {
  std::uint32_t masks[4][8];   // the bits of code K, and the exponent
  float centers[4][8];         // what a code of 8 is then
  std::uint32_t exponents[8];  // of 2^11, twice 16 bits
};
#define FLOTILLA_8_TIMES(v) \
  { v, v, v, v, v, v, v, v }
inline constexpr PartConstants kPartConstants = {
    {FLOTILLA_8_TIMES(0xffff000fu), FLOTILLA_8_TIMES(0xffff00f0u), FLOTILLA_8_TIMES(0xffff0f00u),
     FLOTILLA_8_TIMES(0xfffff000u)},
    {FLOTILLA_8_TIMES(0x1p11f + 8 * kPlaces[0]), FLOTILLA_8_TIMES(0x1p11f + 8 * kPlaces[1]),
     FLOTILLA_8_TIMES(0x1p11f + 8 * kPlaces[2]), FLOTILLA_8_TIMES(0x1p11f + 8 * kPlaces[3])},
    FLOTILLA_8_TIMES(0x45004500u)};
#undef FLOTILLA_8_TIMES
static_assert(offsetof(PartConstants, centers) == 128 && offsetof(PartConstants, exponents) == 256);

// 16 rows x 4 codes: half a chunk.
FLOTILLA_LANE I placed_part(const std::byte* part) {
  const __m256i p = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(part));
  const __m256i e = _mm256_set1_epi16(0x4500);
  return {_mm256_unpacklo_epi16(p, e), _mm256_unpackhi_epi16(p, e)};
}
// Code K of each row, less 8, times 16^(K - 3).
template <int K>
FLOTILLA_LANE F placed_value(I part) {
  return as_float(part & set1_int(0xffff0000u | 15u << 4 * K)) - set1(0x1p11f + 8 * kPlaces[K]);
}

}  // namespace flotilla::backend::cpu_avx2
