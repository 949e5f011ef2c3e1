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
// The same when the weights are expanded before.
inline constexpr int kTiledGroupsInFlight[7] = {0, 4, 2, 1, 1, 1, 1};
// How far ahead a stream of packed weights is asked for.
inline constexpr std::uintptr_t kStreamBytes = 8192;

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

// A chunk: 64 bytes, the 4-bit codes (less 8: two's complement) of 16 rows x 8 k, in the order that
// this target likes. Here two parts of 4 k with two bytes for a row each: k and k + 2 in the first,
// k + 1 and k + 3 in the second. The rows come as 0-3, 8-11, 4-7, 12-15.
FLOTILLA_LANE void make_chunk(std::uint32_t* words) {  // in place, from words: the lowest k first
  const auto swap_middle = [](__m256i v) FLOTILLA_INLINE {
    v = _mm256_xor_si256(v, _mm256_set1_epi32(static_cast<int>(0x88888888u)));
    const __m256i up = _mm256_and_si256(_mm256_slli_epi32(v, 4), _mm256_set1_epi32(0x0f000f00));
    const __m256i down = _mm256_and_si256(_mm256_srli_epi32(v, 4), _mm256_set1_epi32(0x00f000f0));
    const __m256i outer = _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xf00ff00fu)));
    return _mm256_or_si256(outer, _mm256_or_si256(up, down));
  };
  const I w = load_int(words);
  const __m256i lo = swap_middle(w.lo), hi = swap_middle(w.hi), half = _mm256_set1_epi32(0xffff);
  auto* out = reinterpret_cast<__m256i*>(words);
  _mm256_storeu_si256(out,
                      _mm256_packus_epi32(_mm256_and_si256(lo, half), _mm256_and_si256(hi, half)));
  _mm256_storeu_si256(out + 1,
                      _mm256_packus_epi32(_mm256_srli_epi32(lo, 16), _mm256_srli_epi32(hi, 16)));
}
inline std::uint32_t chunk_code(const std::byte* chunk, std::size_t row, std::size_t k) {
  const std::size_t pair = row % 8 / 4 * 8 + row / 8 * 4 + row % 4;
  const auto byte = static_cast<std::uint32_t>(chunk[k / 4 * 32 + pair * 2 + k % 2]);
  return (byte >> (k % 4 / 2 * 4) & 15u) ^ 8u;
}

// A word for each row again, and code K less 8 from it. Its instructions keep out of the way of the
// products: with many rows that counts.
FLOTILLA_LANE I chunk_words(const std::byte* chunk) {
  const I parts = load_int(chunk);
  return {_mm256_unpacklo_epi16(parts.lo, parts.hi), _mm256_unpackhi_epi16(parts.lo, parts.hi)};
}
template <int K>
FLOTILLA_LANE F word_value(I words) {
  constexpr int kNibble = K / 4 * 4 + K % 2 * 2 + K % 4 / 2;
  const I top = shift_left<28 - 4 * kNibble>(words);
  return to_float({_mm256_srai_epi32(top.lo, 28), _mm256_srai_epi32(top.hi, 28)});
}

// fn(k, code less 8) for the values of one part, k increasing. Two table look-ups and an unpack of
// bytes give bfloat16 values, k and k + 1 of a row in one 32-bit lane: 2.4 instructions for 8
// values where words need 3.1, most of them for the two ports of the conversion (1.5 against 1.1
// cycles for 8 weights and a row). With more rows there are too few registers for it.
inline constexpr int kMaxPairedRows = 3;
template <int Part, class Fn>
FLOTILLA_LANE void chunk_pairs(const std::byte* chunk, Fn&& fn) {
  const auto table = [](unsigned long long low, unsigned long long high) FLOTILLA_INLINE {
    const auto l = static_cast<long long>(low), h = static_cast<long long>(high);
    return _mm256_setr_epi64x(l, h, l, h);
  };
  const __m256i upper = table(0x4040404040403f00ull, 0xbfc0c0c0c0c0c0c1ull);
  const __m256i lower = table(0xe0c0a08040008000ull, 0x80004080a0c0e000ull);
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunk) + Part);
  unroll<2>([&](auto n) FLOTILLA_INLINE {
    __m256i index = codes;
    if constexpr (n == 1) index = _mm256_srli_epi32(codes, 4);
    index = _mm256_and_si256(index, _mm256_set1_epi8(15));
    const __m256i u = _mm256_shuffle_epi8(upper, index), l = _mm256_shuffle_epi8(lower, index);
    const I pairs = {_mm256_unpacklo_epi8(l, u), _mm256_unpackhi_epi8(l, u)};
    constexpr int kFirst = Part * 4 + n * 2;
    fn(std::integral_constant<int, kFirst>{}, as_float(shift_left<16>(pairs)));
    fn(std::integral_constant<int, kFirst + 1>{}, as_float(pairs & set1_int(0xffff0000u)));
  });
}

FLOTILLA_LANE void prefetch_near(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
FLOTILLA_LANE void prefetch_far(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}
// Into L1 stalls the loads beside it (one row, one thread: 12.0 against 14.3 GB/s).
FLOTILLA_LANE void prefetch_stream(const void* p) { prefetch_far(p); }

}  // namespace flotilla::backend::cpu_avx2

#include "flotilla/backend/cpu/kernels/transpose_x86.h"
