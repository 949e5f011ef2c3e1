// Sixteen lanes as a vector type of the compiler, which turns it into what registers the build
// allows: for processors without a form of their own. See lanes.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flotilla::backend::cpu_portable {

struct F {
  typedef float Vector __attribute__((vector_size(64)));
  Vector v;
};
struct I {
  typedef std::uint32_t Vector __attribute__((vector_size(64)));
  Vector v;
};
struct Mask {
  I::Vector v;  // all bits of a lane, or none
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
inline constexpr std::uintptr_t kStreamBytes = 8192;

#define FLOTILLA_LANE FLOTILLA_INLINE inline
FLOTILLA_LANE F set1(float v) { return {F::Vector{} + v}; }
FLOTILLA_LANE F broadcast(const float* p) { return set1(*p); }
FLOTILLA_LANE F zero() { return {F::Vector{}}; }
FLOTILLA_LANE F load(const float* p) {
  F out;
  __builtin_memcpy(&out, p, sizeof out);
  return out;
}
FLOTILLA_LANE void store(float* p, const F& v) { __builtin_memcpy(p, &v, sizeof v); }
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
FLOTILLA_LANE
#else
// Sixteen calls of libm's exact fmaf: not worth a copy at every use.
[[gnu::noinline, maybe_unused]] static
#endif
F fma(const F& a, const F& b, const F& c) {
  F out;
  for (int i = 0; i < 16; ++i) out.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return out;
}
FLOTILLA_LANE F operator+(const F& a, const F& b) { return {a.v + b.v}; }
FLOTILLA_LANE F operator-(const F& a, const F& b) { return {a.v - b.v}; }
FLOTILLA_LANE F operator*(const F& a, const F& b) { return {a.v * b.v}; }
FLOTILLA_LANE F operator/(const F& a, const F& b) { return {a.v / b.v}; }
FLOTILLA_LANE Mask less(const F& a, const F& b) { return {(I::Vector)(a.v < b.v)}; }
FLOTILLA_LANE Mask equal(const I& a, const I& b) { return {(I::Vector)(a.v == b.v)}; }
FLOTILLA_LANE F select(const Mask& m, const F& yes, const F& no) {
  return {(F::Vector)((m.v & (I::Vector)yes.v) | (~m.v & (I::Vector)no.v))};
}
// a > b ? a : b and a < b ? a : b: the second operand when either is NaN.
FLOTILLA_LANE F max(const F& a, const F& b) { return select(less(b, a), a, b); }
FLOTILLA_LANE F min(const F& a, const F& b) { return select(less(a, b), a, b); }

FLOTILLA_LANE I set1_int(std::uint32_t v) { return {I::Vector{} + v}; }
FLOTILLA_LANE I load_int(const void* p) {
  I out;
  __builtin_memcpy(&out, p, sizeof out);
  return out;
}
FLOTILLA_LANE I load_u16(const void* p) {
  std::uint16_t t[16];
  __builtin_memcpy(t, p, sizeof t);
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = t[i];
  return out;
}
FLOTILLA_LANE I operator&(const I& a, const I& b) { return {a.v & b.v}; }
FLOTILLA_LANE I operator|(const I& a, const I& b) { return {a.v | b.v}; }
FLOTILLA_LANE I operator^(const I& a, const I& b) { return {a.v ^ b.v}; }
FLOTILLA_LANE I operator+(const I& a, const I& b) { return {a.v + b.v}; }
FLOTILLA_LANE I operator-(const I& a, const I& b) { return {a.v - b.v}; }
template <int N>
FLOTILLA_LANE I shift_right(const I& a) {
  return {a.v >> N};
}
template <int N>
FLOTILLA_LANE I shift_left(const I& a) {
  return {a.v << N};
}
typedef std::int32_t SignedVector __attribute__((vector_size(64)));
FLOTILLA_LANE I halve(const I& a) { return {(I::Vector)((SignedVector)a.v >> 1)}; }
FLOTILLA_LANE F to_float(const I& a) {
  return {__builtin_convertvector((SignedVector)a.v, F::Vector)};
}
FLOTILLA_LANE F as_float(const I& a) { return {(F::Vector)a.v}; }
FLOTILLA_LANE I as_int(const F& a) { return {(I::Vector)a.v}; }
// table[index & 7] of eight entries.
FLOTILLA_LANE F lookup8(const float* table, const I& index) {
  F out;
  for (int i = 0; i < 16; ++i) out.v[i] = table[index.v[i] & 7u];
  return out;
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
FLOTILLA_LANE F word_value(const I& words) {
  return to_float((shift_right<4 * K>(words) & set1_int(15)) - set1_int(8));
}
inline constexpr int kMaxPlacedRows = 0;  // see lanes_avx2.h
inline constexpr bool kExpandsPlaced = false;

FLOTILLA_LANE void prefetch_near(const void* p) { __builtin_prefetch(p); }
FLOTILLA_LANE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }
FLOTILLA_LANE void prefetch_stream(const void* p) { prefetch_near(p); }

// Words [0, num_bytes / 4) of 16 rows, each beginning at rows[r] + at: out[word * 16 + row].
// A last word that is cut short is filled with zeros.
inline void gather_words(const std::byte* const* rows, std::size_t at, std::size_t num_bytes,
                         std::uint32_t* out) {
  for (std::size_t w = 0; w * 4 < num_bytes; ++w) {
    const std::size_t len = num_bytes - w * 4 < 4 ? num_bytes - w * 4 : 4;
    for (std::size_t r = 0; r < 16; ++r) {
      std::uint32_t word = 0;
      __builtin_memcpy(&word, rows[r] + at + w * 4, len);
      out[w * 16 + r] = word;
    }
  }
}

}  // namespace flotilla::backend::cpu_portable
