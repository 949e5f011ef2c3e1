// One to three rows of x times 4-bit codes with AVX2, mostly in assembly: what a decoding step of a
// small batch spends its time in. All sixteen registers are in use, and every accumulator depends
// on its own last product, so speed is decided by the order of the instructions and by nothing
// being kept on the stack. Compilers hoist the constants out of the loop, and spill for them (8
// weights in the cache, one row: 1.04 to 1.3 cycles in a dozen ways of writing it with intrinsics,
// 0.96 here).
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

// Operands: %[w] a chunk of the first group, whose neighbours are %c[s1] and %c[s2] bytes behind;
// %[x] the values of x for it; %[c] kPartConstants.
// clang-format off

// 16 rows x 4 codes, at bytes behind the chunk, as floats in lo (rows 0-7) and hi.
#define FLOTILLA_LOAD_PART(at, lo, hi)                   \
  "vmovdqu " at "(%[w]), %%ymm" hi "\n\t"                \
  "vpunpcklwd 256(%[c]), %%ymm" hi ", %%ymm" lo "\n\t"   \
  "vpunpckhwd 256(%[c]), %%ymm" hi ", %%ymm" hi "\n\t"

// ---- one row: accumulators 0-5, parts 6-11 (three groups), mask 12, center 13
#define FLOTILLA_ROW_HALF(part, acc)               \
  "vpand %%ymm12, %%ymm" part ", %%ymm14\n\t"      \
  "vsubps %%ymm13, %%ymm14, %%ymm14\n\t"           \
  "vfmadd231ps %%ymm15, %%ymm14, %%ymm" acc "\n\t"
#define FLOTILLA_ROW_GROUP(x, lo, hi, acc_lo, acc_hi) \
  "vbroadcastss " x "(%[x]), %%ymm15\n\t"             \
  FLOTILLA_ROW_HALF(lo, acc_lo)                       \
  FLOTILLA_ROW_HALF(hi, acc_hi)
#define FLOTILLA_ROW_CONSTANTS(k)         \
  "vmovdqa " k "*32(%[c]), %%ymm12\n\t"   \
  "vmovaps 128+" k "*32(%[c]), %%ymm13\n\t"
#define FLOTILLA_ROW_STEP(k, x)                    \
  FLOTILLA_ROW_CONSTANTS(k)                        \
  FLOTILLA_ROW_GROUP(x, "6", "7", "0", "1")        \
  FLOTILLA_ROW_GROUP("256+" x, "8", "9", "2", "3") \
  FLOTILLA_ROW_GROUP("512+" x, "10", "11", "4", "5")
// The last code of a part, and the next part.
#define FLOTILLA_ROW_LAST_STEP(x, next)              \
  FLOTILLA_ROW_CONSTANTS("3")                        \
  FLOTILLA_ROW_GROUP(x, "6", "7", "0", "1")          \
  FLOTILLA_LOAD_PART(next, "6", "7")                 \
  FLOTILLA_ROW_GROUP("256+" x, "8", "9", "2", "3")   \
  FLOTILLA_LOAD_PART("%c[s1]+" next, "8", "9")       \
  FLOTILLA_ROW_GROUP("512+" x, "10", "11", "4", "5") \
  FLOTILLA_LOAD_PART("%c[s2]+" next, "10", "11")

// The same for two groups.
#define FLOTILLA_PAIR_STEP(k, x)            \
  FLOTILLA_ROW_CONSTANTS(k)                 \
  FLOTILLA_ROW_GROUP(x, "6", "7", "0", "1") \
  FLOTILLA_ROW_GROUP("256+" x, "8", "9", "2", "3")
#define FLOTILLA_PAIR_LAST_STEP(x, next)           \
  FLOTILLA_ROW_CONSTANTS("3")                      \
  FLOTILLA_ROW_GROUP(x, "6", "7", "0", "1")        \
  FLOTILLA_LOAD_PART(next, "6", "7")               \
  FLOTILLA_ROW_GROUP("256+" x, "8", "9", "2", "3") \
  FLOTILLA_LOAD_PART("%c[s1]+" next, "8", "9")

// ---- two rows: accumulators 0-7, parts 8-11 (two groups), mask 12; centers stay in memory
#define FLOTILLA_ROWS_GROUP(k, x0, x1, lo, hi, lo0, hi0, lo1, hi1) \
  "vpand %%ymm12, %%ymm" lo ", %%ymm13\n\t"                        \
  "vpand %%ymm12, %%ymm" hi ", %%ymm14\n\t"                        \
  "vsubps 128+" k "*32(%[c]), %%ymm13, %%ymm13\n\t"                \
  "vsubps 128+" k "*32(%[c]), %%ymm14, %%ymm14\n\t"                \
  "vbroadcastss " x0 "(%[x]), %%ymm15\n\t"                         \
  "vfmadd231ps %%ymm15, %%ymm13, %%ymm" lo0 "\n\t"                 \
  "vfmadd231ps %%ymm15, %%ymm14, %%ymm" hi0 "\n\t"                 \
  "vbroadcastss " x1 "(%[x]), %%ymm15\n\t"                         \
  "vfmadd231ps %%ymm15, %%ymm13, %%ymm" lo1 "\n\t"                 \
  "vfmadd231ps %%ymm15, %%ymm14, %%ymm" hi1 "\n\t"
#define FLOTILLA_ROWS_MASK(k) "vmovdqa " k "*32(%[c]), %%ymm12\n\t"
#define FLOTILLA_ROWS_FIRST(k, x) \
  FLOTILLA_ROWS_GROUP(k, x, "4+" x, "8", "9", "0", "1", "2", "3")
#define FLOTILLA_ROWS_SECOND(k, x) \
  FLOTILLA_ROWS_GROUP(k, "512+" x, "516+" x, "10", "11", "4", "5", "6", "7")
#define FLOTILLA_ROWS_STEP(k, x) \
  FLOTILLA_ROWS_MASK(k)          \
  FLOTILLA_ROWS_FIRST(k, x)      \
  FLOTILLA_ROWS_SECOND(k, x)
#define FLOTILLA_ROWS_LAST_STEP(x, next) \
  FLOTILLA_ROWS_MASK("3")                \
  FLOTILLA_ROWS_FIRST("3", x)            \
  FLOTILLA_LOAD_PART(next, "8", "9")     \
  FLOTILLA_ROWS_SECOND("3", x)           \
  FLOTILLA_LOAD_PART("%c[s1]+" next, "10", "11")

// clang-format on

// acc[c] = sums over the 64 k of groups c = 0, 1, 2, whose chunks begin Stride bytes apart. Reads,
// and ignores, 32 bytes behind each group. prefetch(j) is called before each of its eight chunks.
template <int Stride, class Prefetch>
FLOTILLA_LANE void multiply_placed(const std::byte* chunks, const float* x, Prefetch&& prefetch,
                                   F (&acc)[3][1]) {
  register __m256 a0 asm("ymm0") = _mm256_setzero_ps();
  register __m256 a1 asm("ymm1") = a0, a2 asm("ymm2") = a0, a3 asm("ymm3") = a0;
  register __m256 a4 asm("ymm4") = a0, a5 asm("ymm5") = a0;
  register __m256i p0 asm("ymm6"), p1 asm("ymm7"), p2 asm("ymm8"), p3 asm("ymm9");
  register __m256i p4 asm("ymm10"), p5 asm("ymm11");
  asm volatile(FLOTILLA_LOAD_PART("0", "6", "7") FLOTILLA_LOAD_PART("%c[s1]", "8", "9")
                   FLOTILLA_LOAD_PART("%c[s2]", "10", "11")
               : "=x"(p0), "=x"(p1), "=x"(p2), "=x"(p3), "=x"(p4), "=x"(p5)
               : [w] "r"(chunks), [c] "r"(&kPartConstants), [s1] "i"(Stride), [s2] "i"(2 * Stride)
               : "memory");
  for (int j = 0; j < 8; ++j, chunks += 64, x += 8) {
    prefetch(j);
    asm volatile(FLOTILLA_ROW_STEP("0", "0") FLOTILLA_ROW_STEP("1", "4") FLOTILLA_ROW_STEP("2", "8")
                     FLOTILLA_ROW_LAST_STEP("12", "32") FLOTILLA_ROW_STEP("0", "16")
                         FLOTILLA_ROW_STEP("1", "20") FLOTILLA_ROW_STEP("2", "24")
                             FLOTILLA_ROW_LAST_STEP("28", "64")
                 : "+x"(a0), "+x"(a1), "+x"(a2), "+x"(a3), "+x"(a4), "+x"(a5), "+x"(p0), "+x"(p1),
                   "+x"(p2), "+x"(p3), "+x"(p4), "+x"(p5)
                 : [w] "r"(chunks), [x] "r"(x), [c] "r"(&kPartConstants), [s1] "i"(Stride),
                   [s2] "i"(2 * Stride)
                 : "memory", "ymm12", "ymm13", "ymm14", "ymm15");
  }
  acc[0][0] = {a0, a1};
  acc[1][0] = {a2, a3};
  acc[2][0] = {a4, a5};
}

// The same for two groups: what is left at the end of a row.
template <int Stride, class Prefetch>
FLOTILLA_LANE void multiply_placed(const std::byte* chunks, const float* x, Prefetch&& prefetch,
                                   F (&acc)[2][1]) {
  register __m256 a0 asm("ymm0") = _mm256_setzero_ps();
  register __m256 a1 asm("ymm1") = a0, a2 asm("ymm2") = a0, a3 asm("ymm3") = a0;
  register __m256i p0 asm("ymm6"), p1 asm("ymm7"), p2 asm("ymm8"), p3 asm("ymm9");
  asm volatile(FLOTILLA_LOAD_PART("0", "6", "7") FLOTILLA_LOAD_PART("%c[s1]", "8", "9")
               : "=x"(p0), "=x"(p1), "=x"(p2), "=x"(p3)
               : [w] "r"(chunks), [c] "r"(&kPartConstants), [s1] "i"(Stride)
               : "memory");
  for (int j = 0; j < 8; ++j, chunks += 64, x += 8) {
    prefetch(j);
    asm volatile(FLOTILLA_PAIR_STEP("0", "0") FLOTILLA_PAIR_STEP("1", "4")
                     FLOTILLA_PAIR_STEP("2", "8") FLOTILLA_PAIR_LAST_STEP("12", "32")
                         FLOTILLA_PAIR_STEP("0", "16") FLOTILLA_PAIR_STEP("1", "20")
                             FLOTILLA_PAIR_STEP("2", "24") FLOTILLA_PAIR_LAST_STEP("28", "64")
                 : "+x"(a0), "+x"(a1), "+x"(a2), "+x"(a3), "+x"(p0), "+x"(p1), "+x"(p2), "+x"(p3)
                 : [w] "r"(chunks), [x] "r"(x), [c] "r"(&kPartConstants), [s1] "i"(Stride)
                 : "memory", "ymm12", "ymm13", "ymm14", "ymm15");
  }
  acc[0][0] = {a0, a1};
  acc[1][0] = {a2, a3};
}

// The same for two groups and two rows, whose values alternate in x.
template <int Stride, class Prefetch>
FLOTILLA_LANE void multiply_placed(const std::byte* chunks, const float* x, Prefetch&& prefetch,
                                   F (&acc)[2][2]) {
  register __m256 a0 asm("ymm0") = _mm256_setzero_ps();
  register __m256 a1 asm("ymm1") = a0, a2 asm("ymm2") = a0, a3 asm("ymm3") = a0;
  register __m256 a4 asm("ymm4") = a0, a5 asm("ymm5") = a0, a6 asm("ymm6") = a0;
  register __m256 a7 asm("ymm7") = a0;
  register __m256i p0 asm("ymm8"), p1 asm("ymm9"), p2 asm("ymm10"), p3 asm("ymm11");
  asm volatile(FLOTILLA_LOAD_PART("0", "8", "9") FLOTILLA_LOAD_PART("%c[s1]", "10", "11")
               : "=x"(p0), "=x"(p1), "=x"(p2), "=x"(p3)
               : [w] "r"(chunks), [c] "r"(&kPartConstants), [s1] "i"(Stride)
               : "memory");
  for (int j = 0; j < 8; ++j, chunks += 64, x += 16) {
    prefetch(j);
    asm volatile(FLOTILLA_ROWS_STEP("0", "0") FLOTILLA_ROWS_STEP("1", "8")
                     FLOTILLA_ROWS_STEP("2", "16") FLOTILLA_ROWS_LAST_STEP("24", "32")
                         FLOTILLA_ROWS_STEP("0", "32") FLOTILLA_ROWS_STEP("1", "40")
                             FLOTILLA_ROWS_STEP("2", "48") FLOTILLA_ROWS_LAST_STEP("56", "64")
                 : "+x"(a0), "+x"(a1), "+x"(a2), "+x"(a3), "+x"(a4), "+x"(a5), "+x"(a6), "+x"(a7),
                   "+x"(p0), "+x"(p1), "+x"(p2), "+x"(p3)
                 : [w] "r"(chunks), [x] "r"(x), [c] "r"(&kPartConstants), [s1] "i"(Stride)
                 : "memory", "ymm12", "ymm13", "ymm14", "ymm15");
  }
  acc[0][0] = {a0, a1};
  acc[0][1] = {a2, a3};
  acc[1][0] = {a4, a5};
  acc[1][1] = {a6, a7};
}

// Any other number of groups and rows.
template <int Stride, class Prefetch, int B, int M>
FLOTILLA_LANE void multiply_placed(const std::byte* chunks, const float* x, Prefetch&& prefetch,
                                   F (&acc)[B][M]) {
  unroll<B * M>([&](auto i) FLOTILLA_INLINE { acc[i / M][i % M] = zero(); });
  for (int j = 0; j < 8; ++j, chunks += 64, x += 8 * M) {
    prefetch(j);
    unroll<2>([&](auto part) FLOTILLA_INLINE {
      I codes[B];
      unroll<B>([&](auto c) FLOTILLA_INLINE {
        const I packed = load_int(chunks + c * Stride);
        const __m256i p = part == 0 ? packed.lo : packed.hi, e = _mm256_set1_epi16(0x4500);
        codes[c] = {_mm256_unpacklo_epi16(p, e), _mm256_unpackhi_epi16(p, e)};
      });
      unroll<4>([&](auto k) FLOTILLA_INLINE {
        unroll<B>([&](auto c) FLOTILLA_INLINE {
          const F q = as_float(codes[c] & set1_int(0xffff0000u | 15u << 4 * k)) -
                      set1(0x1p11f + 8 * kPlaces[k]);
          unroll<M>([&](auto m) FLOTILLA_INLINE {
            const float* xk = x + (c * 64 + part * 4 + k) * M + m;
            acc[c][m] = fma(q, broadcast(xk), acc[c][m]);
          });
        });
      });
    });
  }
}

#undef FLOTILLA_ROW_HALF
#undef FLOTILLA_ROW_GROUP
#undef FLOTILLA_ROW_CONSTANTS
#undef FLOTILLA_ROW_STEP
#undef FLOTILLA_ROW_LAST_STEP
#undef FLOTILLA_PAIR_STEP
#undef FLOTILLA_PAIR_LAST_STEP
#undef FLOTILLA_ROWS_GROUP
#undef FLOTILLA_ROWS_MASK
#undef FLOTILLA_ROWS_FIRST
#undef FLOTILLA_ROWS_SECOND
#undef FLOTILLA_ROWS_STEP
#undef FLOTILLA_ROWS_LAST_STEP
#undef FLOTILLA_LOAD_PART

}  // namespace flotilla::backend::cpu_avx2
