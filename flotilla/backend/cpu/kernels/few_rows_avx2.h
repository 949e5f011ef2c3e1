// One to four rows of x times 4-bit codes with AVX2, mostly in assembly: what a decoding step of a
// small batch spends its time in. All sixteen registers are in use, and every accumulator depends
// on its own last product, so speed is decided by the order of the instructions and by nothing
// being kept on the stack. Compilers hoist the constants out of the loop, and spill for them (8
// weights in the cache, one row: 1.04 to 1.3 cycles in a dozen ways of writing it with intrinsics,
// 0.96 here).
#pragma once

#include "flotilla/backend/cpu/kernels/placed_avx2.h"

namespace flotilla::backend::cpu_avx2 {

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

// The same for three tiles, which share x.
#define FLOTILLA_TILES_STEP(k, x)           \
  FLOTILLA_ROW_CONSTANTS(k)                 \
  "vbroadcastss " x "(%[x]), %%ymm15\n\t"   \
  FLOTILLA_ROW_HALF("6", "0")               \
  FLOTILLA_ROW_HALF("7", "1")               \
  FLOTILLA_ROW_HALF("8", "2")               \
  FLOTILLA_ROW_HALF("9", "3")               \
  FLOTILLA_ROW_HALF("10", "4")              \
  FLOTILLA_ROW_HALF("11", "5")
#define FLOTILLA_TILES_LAST_STEP(x, next)        \
  FLOTILLA_ROW_CONSTANTS("3")                    \
  "vbroadcastss " x "(%[x]), %%ymm15\n\t"        \
  FLOTILLA_ROW_HALF("6", "0")                    \
  FLOTILLA_ROW_HALF("7", "1")                    \
  FLOTILLA_LOAD_PART(next, "6", "7")             \
  FLOTILLA_ROW_HALF("8", "2")                    \
  FLOTILLA_ROW_HALF("9", "3")                    \
  FLOTILLA_LOAD_PART("%c[s1]+" next, "8", "9")   \
  FLOTILLA_ROW_HALF("10", "4")                   \
  FLOTILLA_ROW_HALF("11", "5")                   \
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

// ---- two rows: accumulators 0-7, parts 8-11 (two groups), mask 12. Loads are what there is least
// of: a center is loaded once for two values, the exponents once for two halves of a part.
#define FLOTILLA_ROWS_PRODUCTS(x0, x1, lo0, hi0, lo1, hi1) \
  "vbroadcastss " x0 "(%[x]), %%ymm15\n\t"                 \
  "vfmadd231ps %%ymm15, %%ymm13, %%ymm" lo0 "\n\t"         \
  "vfmadd231ps %%ymm15, %%ymm14, %%ymm" hi0 "\n\t"         \
  "vbroadcastss " x1 "(%[x]), %%ymm15\n\t"                 \
  "vfmadd231ps %%ymm15, %%ymm13, %%ymm" lo1 "\n\t"         \
  "vfmadd231ps %%ymm15, %%ymm14, %%ymm" hi1 "\n\t"
#define FLOTILLA_ROWS_VALUES(k, lo, hi)       \
  "vpand %%ymm12, %%ymm" lo ", %%ymm13\n\t"   \
  "vpand %%ymm12, %%ymm" hi ", %%ymm14\n\t"   \
  "vmovaps 128+" k "*32(%[c]), %%ymm15\n\t"   \
  "vsubps %%ymm15, %%ymm13, %%ymm13\n\t"      \
  "vsubps %%ymm15, %%ymm14, %%ymm14\n\t"
#define FLOTILLA_ROWS_STEP(k, x)                                                \
  "vmovdqa " k "*32(%[c]), %%ymm12\n\t"                                         \
  FLOTILLA_ROWS_VALUES(k, "8", "9")                                             \
  FLOTILLA_ROWS_PRODUCTS(x, "4+" x, "0", "1", "2", "3")                         \
  FLOTILLA_ROWS_VALUES(k, "10", "11")                                           \
  FLOTILLA_ROWS_PRODUCTS("512+" x, "516+" x, "4", "5", "6", "7")
// The highest code, whose center is in 12: what stands behind it is rounded down.
#define FLOTILLA_ROWS_LAST_VALUES(lo, hi)     \
  "vsubps %%ymm12, %%ymm" lo ", %%ymm13\n\t"  \
  "vsubps %%ymm12, %%ymm" hi ", %%ymm14\n\t"  \
  "vroundps $9, %%ymm13, %%ymm13\n\t"         \
  "vroundps $9, %%ymm14, %%ymm14\n\t"
#define FLOTILLA_ROWS_LOAD_PART(at, lo, hi)            \
  "vmovdqa 256(%[c]), %%ymm13\n\t"                     \
  "vmovdqu " at "(%[w]), %%ymm" hi "\n\t"              \
  "vpunpcklwd %%ymm13, %%ymm" hi ", %%ymm" lo "\n\t"   \
  "vpunpckhwd %%ymm13, %%ymm" hi ", %%ymm" hi "\n\t"
#define FLOTILLA_ROWS_LAST_STEP(x, next)                                        \
  "vmovaps 224(%[c]), %%ymm12\n\t"                                              \
  FLOTILLA_ROWS_LAST_VALUES("8", "9")                                           \
  FLOTILLA_ROWS_PRODUCTS(x, "4+" x, "0", "1", "2", "3")                         \
  FLOTILLA_ROWS_LOAD_PART(next, "8", "9")                                       \
  FLOTILLA_ROWS_LAST_VALUES("10", "11")                                         \
  FLOTILLA_ROWS_PRODUCTS("512+" x, "516+" x, "4", "5", "6", "7")                \
  FLOTILLA_ROWS_LOAD_PART("%c[s1]+" next, "10", "11")

// ---- four rows: accumulators 0-7, part 8-9 (one group), values of a code 10-11 and of the next
// 12-13, mask and center 15. The eight chains are just what the latency of the multiply-add units
// needs, so the next values are made well before their turn.
#define FLOTILLA_FOUR_ROW(x, lo, hi, acc_lo, acc_hi)        \
  "vbroadcastss " x "(%[x]), %%ymm14\n\t"                   \
  "vfmadd231ps %%ymm14, %%ymm" lo ", %%ymm" acc_lo "\n\t"   \
  "vfmadd231ps %%ymm14, %%ymm" hi ", %%ymm" acc_hi "\n\t"
#define FLOTILLA_FOUR_STEP(x, lo, hi, next, next_lo, next_hi)     \
  FLOTILLA_FOUR_ROW(x, lo, hi, "0", "1")                          \
  "vmovdqa " next "*32(%[c]), %%ymm15\n\t"                        \
  "vpand %%ymm15, %%ymm8, %%ymm" next_lo "\n\t"                   \
  FLOTILLA_FOUR_ROW("4+" x, lo, hi, "2", "3")                     \
  "vpand %%ymm15, %%ymm9, %%ymm" next_hi "\n\t"                   \
  "vmovaps 128+" next "*32(%[c]), %%ymm15\n\t"                    \
  "vsubps %%ymm15, %%ymm" next_lo ", %%ymm" next_lo "\n\t"        \
  FLOTILLA_FOUR_ROW("8+" x, lo, hi, "4", "5")                     \
  "vsubps %%ymm15, %%ymm" next_hi ", %%ymm" next_hi "\n\t"        \
  FLOTILLA_FOUR_ROW("12+" x, lo, hi, "6", "7")
// The next code being the highest: see above.
#define FLOTILLA_FOUR_THIRD_STEP(x, lo, hi, next_lo, next_hi)     \
  FLOTILLA_FOUR_ROW(x, lo, hi, "0", "1")                          \
  "vmovaps 224(%[c]), %%ymm15\n\t"                                \
  "vsubps %%ymm15, %%ymm8, %%ymm" next_lo "\n\t"                  \
  FLOTILLA_FOUR_ROW("4+" x, lo, hi, "2", "3")                     \
  "vsubps %%ymm15, %%ymm9, %%ymm" next_hi "\n\t"                  \
  "vroundps $9, %%ymm" next_lo ", %%ymm" next_lo "\n\t"           \
  FLOTILLA_FOUR_ROW("8+" x, lo, hi, "4", "5")                     \
  "vroundps $9, %%ymm" next_hi ", %%ymm" next_hi "\n\t"           \
  FLOTILLA_FOUR_ROW("12+" x, lo, hi, "6", "7")
// Four codes; then comes the part at `next`.
#define FLOTILLA_FOUR_PART(x, next)                               \
  FLOTILLA_FOUR_STEP(x, "10", "11", "1", "12", "13")              \
  FLOTILLA_FOUR_STEP("16+" x, "12", "13", "2", "10", "11")        \
  FLOTILLA_FOUR_THIRD_STEP("32+" x, "10", "11", "12", "13")       \
  FLOTILLA_LOAD_PART(next, "8", "9")                              \
  FLOTILLA_FOUR_STEP("48+" x, "12", "13", "0", "10", "11")

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

// The same for one group of three tiles, which begin Stride bytes apart.
template <int Stride, class Prefetch>
FLOTILLA_LANE void multiply_tiles(const std::byte* chunks, const float* x, Prefetch&& prefetch,
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
    asm volatile(FLOTILLA_TILES_STEP("0", "0") FLOTILLA_TILES_STEP("1", "4")
                     FLOTILLA_TILES_STEP("2", "8") FLOTILLA_TILES_LAST_STEP("12", "32")
                         FLOTILLA_TILES_STEP("0", "16") FLOTILLA_TILES_STEP("1", "20")
                             FLOTILLA_TILES_STEP("2", "24") FLOTILLA_TILES_LAST_STEP("28", "64")
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

// The same for one group and four rows.
template <int Stride, class Prefetch>
FLOTILLA_LANE void multiply_placed(const std::byte* chunks, const float* x, Prefetch&& prefetch,
                                   F (&acc)[1][4]) {
  register __m256 a0 asm("ymm0") = _mm256_setzero_ps();
  register __m256 a1 asm("ymm1") = a0, a2 asm("ymm2") = a0, a3 asm("ymm3") = a0;
  register __m256 a4 asm("ymm4") = a0, a5 asm("ymm5") = a0, a6 asm("ymm6") = a0;
  register __m256 a7 asm("ymm7") = a0;
  register __m256i p0 asm("ymm8"), p1 asm("ymm9");
  register __m256 q0 asm("ymm10"), q1 asm("ymm11");
  asm volatile(FLOTILLA_LOAD_PART("0", "8", "9")
               "vpand (%[c]), %%ymm8, %%ymm10\n\t"
               "vpand (%[c]), %%ymm9, %%ymm11\n\t"
               "vsubps 128(%[c]), %%ymm10, %%ymm10\n\t"
               "vsubps 128(%[c]), %%ymm11, %%ymm11\n\t"
               : "=x"(p0), "=x"(p1), "=x"(q0), "=x"(q1)
               : [w] "r"(chunks), [c] "r"(&kPartConstants)
               : "memory");
  for (int j = 0; j < 8; ++j, chunks += 64, x += 32) {
    prefetch(j);
    asm volatile(FLOTILLA_FOUR_PART("0", "32") FLOTILLA_FOUR_PART("64", "64")
                 : "+x"(a0), "+x"(a1), "+x"(a2), "+x"(a3), "+x"(a4), "+x"(a5), "+x"(a6), "+x"(a7),
                   "+x"(p0), "+x"(p1), "+x"(q0), "+x"(q1)
                 : [w] "r"(chunks), [x] "r"(x), [c] "r"(&kPartConstants)
                 : "memory", "ymm12", "ymm13", "ymm14", "ymm15");
  }
  acc[0][0] = {a0, a1};
  acc[0][1] = {a2, a3};
  acc[0][2] = {a4, a5};
  acc[0][3] = {a6, a7};
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
      unroll<B>([&](auto c)
                    FLOTILLA_INLINE { codes[c] = placed_part(chunks + c * Stride + part * 32); });
      unroll<4>([&](auto k) FLOTILLA_INLINE {
        unroll<B>([&](auto c) FLOTILLA_INLINE {
          const F q = placed_value<k>(codes[c]);
          unroll<M>([&](auto m) FLOTILLA_INLINE {
            const float* xk = x + (c * 64 + part * 4 + k) * M + m;
            acc[c][m] = fma(q, broadcast(xk), acc[c][m]);
          });
        });
      });
    });
  }
}

#undef FLOTILLA_LOAD_PART
#undef FLOTILLA_ROW_HALF
#undef FLOTILLA_ROW_GROUP
#undef FLOTILLA_ROW_CONSTANTS
#undef FLOTILLA_ROW_STEP
#undef FLOTILLA_ROW_LAST_STEP
#undef FLOTILLA_TILES_STEP
#undef FLOTILLA_TILES_LAST_STEP
#undef FLOTILLA_PAIR_STEP
#undef FLOTILLA_PAIR_LAST_STEP
#undef FLOTILLA_ROWS_PRODUCTS
#undef FLOTILLA_ROWS_VALUES
#undef FLOTILLA_ROWS_STEP
#undef FLOTILLA_ROWS_LAST_VALUES
#undef FLOTILLA_ROWS_LOAD_PART
#undef FLOTILLA_ROWS_LAST_STEP
#undef FLOTILLA_FOUR_ROW
#undef FLOTILLA_FOUR_STEP
#undef FLOTILLA_FOUR_THIRD_STEP
#undef FLOTILLA_FOUR_PART

}  // namespace flotilla::backend::cpu_avx2
