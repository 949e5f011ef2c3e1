// Sixteen lanes as two AVX2 registers. See lanes.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace flotilla::backend::cpu_avx2 {

struct F {
  __m256 lo, hi;
};
struct I {
  __m256i lo, hi;
};
struct Mask {
  __m256 lo, hi;
};
// Groups in flight for 1 to 6 rows of x: enough chains to hide the latency of FMA, and no more
// than the registers hold.
inline constexpr int kGroupsInFlight[7] = {0, 2, 2, 1, 1, 1, 1};
// The same in a bundle of three tiles: tiles, and groups of each.
inline constexpr int kTilesInFlight[7] = {0, 3, 1, 1, 1, 1, 1};
inline constexpr int kBundleGroupsInFlight[7] = {0, 1, 2, 1, 1, 1, 1};
// The same when the weights are expanded before.
inline constexpr int kTiledGroupsInFlight[7] = {0, 4, 2, 1, 1, 1, 1};
// How far ahead a stream of packed weights is asked for.
inline constexpr std::uintptr_t kStreamBytes = 3072;

#define FLOTILLA_LANE FLOTILLA_INLINE inline
FLOTILLA_LANE F set1(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
FLOTILLA_LANE F broadcast(const float* p) {
  const __m256 v = _mm256_broadcast_ss(p);
  return {v, v};
}
FLOTILLA_LANE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
FLOTILLA_LANE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
FLOTILLA_LANE void store(float* p, F v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
FLOTILLA_LANE F fma(F a, F b, F c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
FLOTILLA_LANE F operator+(F a, F b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
FLOTILLA_LANE F operator-(F a, F b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
FLOTILLA_LANE F operator*(F a, F b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
FLOTILLA_LANE F operator/(F a, F b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
// a > b ? a : b and a < b ? a : b: the second operand when either is NaN.
FLOTILLA_LANE F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
FLOTILLA_LANE F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
FLOTILLA_LANE Mask less(F a, F b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
FLOTILLA_LANE Mask equal(I a, I b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.lo, b.lo)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.hi, b.hi))};
}
FLOTILLA_LANE F select(Mask m, F yes, F no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

FLOTILLA_LANE I set1_int(std::uint32_t v) {
  const __m256i s = _mm256_set1_epi32(static_cast<int>(v));
  return {s, s};
}
FLOTILLA_LANE I load_int(const void* p) {
  const auto* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
FLOTILLA_LANE I load_u16(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1))};
}
FLOTILLA_LANE I operator&(I a, I b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
FLOTILLA_LANE I operator|(I a, I b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
FLOTILLA_LANE I operator^(I a, I b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
FLOTILLA_LANE I operator+(I a, I b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
FLOTILLA_LANE I operator-(I a, I b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
template <int N>
FLOTILLA_LANE I shift_right(I a) {
  if constexpr (N == 0) return a;
  return {_mm256_srli_epi32(a.lo, N), _mm256_srli_epi32(a.hi, N)};
}
template <int N>
FLOTILLA_LANE I shift_left(I a) {
  if constexpr (N == 0) return a;
  return {_mm256_slli_epi32(a.lo, N), _mm256_slli_epi32(a.hi, N)};
}
FLOTILLA_LANE I halve(I a) { return {_mm256_srai_epi32(a.lo, 1), _mm256_srai_epi32(a.hi, 1)}; }
FLOTILLA_LANE F to_float(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
FLOTILLA_LANE F as_float(I a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
FLOTILLA_LANE I as_int(F a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
// table[index & 7] of eight entries.
FLOTILLA_LANE F lookup8(const float* table, I index) {
  const __m256 t = _mm256_loadu_ps(table);
  return {_mm256_permutevar8x32_ps(t, index.lo), _mm256_permutevar8x32_ps(t, index.hi)};
}

// A chunk: 64 bytes, the 4-bit codes of 16 rows x 8 k, in the order that this target likes. Here
// two parts of 4 k with 16 bits for a row each, rows in the order 0-3, 8-11, 4-7, 12-15.
FLOTILLA_LANE void make_chunk(std::uint32_t* words) {  // in place, from words: the lowest k first
  const I w = load_int(words);
  const __m256i half = _mm256_set1_epi32(0xffff);
  auto* out = reinterpret_cast<__m256i*>(words);
  _mm256_storeu_si256(
      out, _mm256_packus_epi32(_mm256_and_si256(w.lo, half), _mm256_and_si256(w.hi, half)));
  _mm256_storeu_si256(
      out + 1, _mm256_packus_epi32(_mm256_srli_epi32(w.lo, 16), _mm256_srli_epi32(w.hi, 16)));
}
inline std::uint32_t chunk_code(const std::byte* chunk, std::size_t row, std::size_t k) {
  const std::size_t at = row % 8 / 4 * 8 + row / 8 * 4 + row % 4;
  std::uint16_t part = 0;
  __builtin_memcpy(&part, chunk + k / 4 * 32 + at * 2, sizeof part);
  return static_cast<std::uint32_t>(part) >> (k % 4 * 4) & 15u;
}

// A word for each row again, its codes less 8 in two's complement, and code K from it. Its
// instructions keep out of the way of the products: with many rows that counts.
FLOTILLA_LANE I chunk_words(const std::byte* chunk) {
  const I parts = load_int(chunk);
  const I words = {_mm256_unpacklo_epi16(parts.lo, parts.hi),
                   _mm256_unpackhi_epi16(parts.lo, parts.hi)};
  return words ^ set1_int(0x88888888u);
}
template <int K>
FLOTILLA_LANE F word_value(I words) {
  const I top = shift_left<28 - 4 * K>(words);
  return to_float({_mm256_srai_epi32(top.lo, 28), _mm256_srai_epi32(top.hi, 28)});
}
// Rows of x up to which products leave codes at their place (few_rows_avx2.h), and whether the
// expansion for many rows does (placed_avx2.h).
inline constexpr int kMaxPlacedRows = 4;
inline constexpr bool kExpandsPlaced = true;

FLOTILLA_LANE void prefetch_near(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
FLOTILLA_LANE void prefetch_far(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}
// Into L1 from a short distance and in the order of addresses; further away, or into L2, is slower
// from four rows on (44 to 46 against 48.5 GMAC/s).
FLOTILLA_LANE void prefetch_stream(const void* p) { prefetch_near(p); }

}  // namespace flotilla::backend::cpu_avx2

#include "flotilla/backend/cpu/kernels/transpose_x86.h"
