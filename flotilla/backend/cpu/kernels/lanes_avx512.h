// Sixteen lanes as one AVX-512 register. See lanes.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace flotilla::backend::cpu_avx512 {

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};
struct Mask {
  __mmask16 m;
};
// Groups in flight for 1 to 6 rows of x: enough chains to hide the latency of FMA, and no more
// than the registers hold.
inline constexpr int kGroupsInFlight[7] = {0, 4, 2, 2, 2, 2, 2};
// The same in a bundle of three tiles: tiles, and groups of each.
inline constexpr int kTilesInFlight[7] = {0, 3, 3, 3, 1, 1, 1};
inline constexpr int kBundleGroupsInFlight[7] = {0, 2, 1, 1, 2, 2, 2};
// The same when the weights are expanded before.
inline constexpr int kTiledGroupsInFlight[7] = {0, 4, 2, 2, 2, 2, 2};
// How far ahead a stream of packed weights is asked for.
inline constexpr std::uintptr_t kStreamBytes = 3072;

#define FLOTILLA_LANE FLOTILLA_INLINE inline
FLOTILLA_LANE F set1(float v) { return {_mm512_set1_ps(v)}; }
FLOTILLA_LANE F broadcast(const float* p) { return {_mm512_set1_ps(*p)}; }
FLOTILLA_LANE F zero() { return {_mm512_setzero_ps()}; }
FLOTILLA_LANE F load(const float* p) { return {_mm512_loadu_ps(p)}; }
FLOTILLA_LANE void store(float* p, F v) { _mm512_storeu_ps(p, v.v); }
FLOTILLA_LANE F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
FLOTILLA_LANE F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
FLOTILLA_LANE F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
FLOTILLA_LANE F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
FLOTILLA_LANE F operator/(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
// a > b ? a : b and a < b ? a : b: the second operand when either is NaN.
FLOTILLA_LANE F max(F a, F b) { return {_mm512_maskz_max_ps(0xffff, a.v, b.v)}; }
FLOTILLA_LANE F min(F a, F b) { return {_mm512_maskz_min_ps(0xffff, a.v, b.v)}; }
FLOTILLA_LANE Mask less(F a, F b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
FLOTILLA_LANE Mask equal(I a, I b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
FLOTILLA_LANE F select(Mask m, F yes, F no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }

FLOTILLA_LANE I set1_int(std::uint32_t v) { return {_mm512_set1_epi32(static_cast<int>(v))}; }
FLOTILLA_LANE I load_int(const void* p) { return {_mm512_loadu_si512(p)}; }
FLOTILLA_LANE I load_u16(const void* p) {
  return {_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
FLOTILLA_LANE I operator&(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
FLOTILLA_LANE I operator|(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
FLOTILLA_LANE I operator^(I a, I b) { return {_mm512_xor_si512(a.v, b.v)}; }
FLOTILLA_LANE I operator+(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
FLOTILLA_LANE I operator-(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
template <int N>
FLOTILLA_LANE I shift_right(I a) {
  if constexpr (N == 0) return a;
  return {_mm512_maskz_srli_epi32(0xffff, a.v, N)};
}
template <int N>
FLOTILLA_LANE I shift_left(I a) {
  if constexpr (N == 0) return a;
  return {_mm512_maskz_slli_epi32(0xffff, a.v, N)};
}
FLOTILLA_LANE I halve(I a) { return {_mm512_maskz_srai_epi32(0xffff, a.v, 1)}; }
FLOTILLA_LANE F to_float(I a) { return {_mm512_maskz_cvtepi32_ps(0xffff, a.v)}; }
FLOTILLA_LANE F as_float(I a) { return {_mm512_castsi512_ps(a.v)}; }
FLOTILLA_LANE I as_int(F a) { return {_mm512_castps_si512(a.v)}; }
// table[index & 7] of eight entries.
FLOTILLA_LANE F lookup8(const float* table, I index) {
  const __m256 t = _mm256_loadu_ps(table);
  const __m512 both = _mm512_insertf32x8(_mm512_castps256_ps512(t), t, 1);
  return {_mm512_maskz_permutexvar_ps(0xffff, index.v, both)};
}

// A chunk: 64 bytes, the 4-bit codes of 16 rows x 8 k, in the order that this target likes. Here a
// word for each row, as stored.
FLOTILLA_LANE void make_chunk(std::uint32_t*) {}  // in place, from words: the lowest k first
inline std::uint32_t chunk_code(const std::byte* chunk, std::size_t row, std::size_t k) {
  std::uint32_t word = 0;
  __builtin_memcpy(&word, chunk + row * 4, sizeof word);
  return word >> (k * 4) & 15u;
}
// A word for each row, and code K less 8 from it.
FLOTILLA_LANE I chunk_words(const std::byte* chunk) { return load_int(chunk); }
template <int K>
FLOTILLA_LANE F word_value(I words) {
  const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  // Only the low four bits of an index count.
  return {_mm512_maskz_permutexvar_ps(0xffff, shift_right<4 * K>(words).v, values)};
}
inline constexpr int kMaxPlacedRows = 0;  // see lanes_avx2.h
inline constexpr bool kExpandsPlaced = false;

FLOTILLA_LANE void prefetch_near(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
FLOTILLA_LANE void prefetch_far(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}
// See lanes_avx2.h.
FLOTILLA_LANE void prefetch_stream(const void* p) { prefetch_near(p); }

}  // namespace flotilla::backend::cpu_avx512

#include "flotilla/backend/cpu/kernels/transpose_x86.h"
