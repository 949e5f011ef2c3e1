// Sixteen lanes of float32 or 32-bit integers: what every CPU kernel is written with. The kernel
// sources are compiled once per instruction set, each time into a namespace of its own, so that no
// linker can mix code for different processors. Every operation is a single IEEE operation per
// lane, hence all instruction sets give the same bits.
//
// Sources that include this file use no function of the standard library and no inline function of
// other headers that does arithmetic: such functions are shared between translation units and could
// end up compiled for the wrong target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(FLOTILLA_CPU_AVX512)
#define FLOTILLA_CPU_TARGET cpu_avx512
#elif defined(FLOTILLA_CPU_AVX2)
#define FLOTILLA_CPU_TARGET cpu_avx2
#else
#define FLOTILLA_CPU_TARGET cpu_portable
#endif

// Not only for speed: GCC 12 takes a function that does nothing but prefetch for one without
// effect, and drops the call.
#define FLOTILLA_INLINE __attribute__((always_inline))

namespace flotilla::backend::FLOTILLA_CPU_TARGET {

// f(0), f(1), .. with constant arguments: arrays of vectors then live in registers. (GCC 12 keeps
// them in memory when a loop over them is unrolled late, which halves the speed.)
template <class Fn, int... I>
FLOTILLA_INLINE inline void unroll_impl(Fn&& f, std::integer_sequence<int, I...>) {
  (f(std::integral_constant<int, I>{}), ...);
}
template <int N, class Fn>
FLOTILLA_INLINE inline void unroll(Fn&& f) {
  unroll_impl(static_cast<Fn&&>(f), std::make_integer_sequence<int, N>{});
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET

#if defined(FLOTILLA_CPU_AVX512)
#include "flotilla/backend/cpu/kernels/lanes_avx512.h"
#elif defined(FLOTILLA_CPU_AVX2)
#include "flotilla/backend/cpu/kernels/lanes_avx2.h"
#else
#include "flotilla/backend/cpu/kernels/lanes_portable.h"
#endif

namespace flotilla::backend::FLOTILLA_CPU_TARGET {

inline constexpr int kLanes = 16;

FLOTILLA_INLINE inline int min_int(int a, int b) { return a < b ? a : b; }
FLOTILLA_INLINE inline int max_int(int a, int b) { return a > b ? a : b; }

// The first n lanes; the others are zero.
FLOTILLA_INLINE inline F load_partial(const float* p, int n) {
  if (n >= kLanes) return load(p);
  alignas(64) float t[kLanes] = {};
  __builtin_memcpy(t, p, static_cast<std::size_t>(n) * sizeof(float));
  return load(t);
}
FLOTILLA_INLINE inline void store_partial(float* p, F v, int n) {
  if (n >= kLanes) return store(p, v);
  alignas(64) float t[kLanes];
  store(t, v);
  __builtin_memcpy(p, t, static_cast<std::size_t>(n) * sizeof(float));
}

// Lane l + 8 onto lane l, then 4, 2, 1: the fixed tree of every reduction.
FLOTILLA_INLINE inline float reduce_add(F v) {
  alignas(64) float t[kLanes];
  store(t, v);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) t[i] = t[i] + t[i + half];
  }
  return t[0];
}
FLOTILLA_INLINE inline float reduce_max(F v) {
  alignas(64) float t[kLanes];
  store(t, v);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) t[i] = t[i] > t[i + half] ? t[i] : t[i + half];
  }
  return t[0];
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
