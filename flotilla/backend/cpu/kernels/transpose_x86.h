// Sixteen rows of bytes into lanes, with AVX2 (which AVX-512 builds have too). See lanes.h.
#pragma once

namespace flotilla::backend::FLOTILLA_CPU_TARGET {

FLOTILLA_LANE __m256i load_pair(const std::byte* lo, const std::byte* hi) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lo))),
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(hi)), 1);
}

// 8 rows x 4 words -> 4 vectors of 8 rows, stored 16 words apart.
FLOTILLA_LANE void transpose_words(const std::byte* const* rows, std::size_t at,
                                   std::uint32_t* out) {
  const __m256i a0 = load_pair(rows[0] + at, rows[4] + at);
  const __m256i a1 = load_pair(rows[1] + at, rows[5] + at);
  const __m256i a2 = load_pair(rows[2] + at, rows[6] + at);
  const __m256i a3 = load_pair(rows[3] + at, rows[7] + at);
  const __m256i b0 = _mm256_unpacklo_epi32(a0, a1), b1 = _mm256_unpacklo_epi32(a2, a3);
  const __m256i b2 = _mm256_unpackhi_epi32(a0, a1), b3 = _mm256_unpackhi_epi32(a2, a3);
  auto* o = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(o + 0, _mm256_unpacklo_epi64(b0, b1));
  _mm256_storeu_si256(o + 2, _mm256_unpackhi_epi64(b0, b1));
  _mm256_storeu_si256(o + 4, _mm256_unpacklo_epi64(b2, b3));
  _mm256_storeu_si256(o + 6, _mm256_unpackhi_epi64(b2, b3));
}

// Words [0, num_bytes / 4) of 16 rows, each beginning at rows[r] + at: out[word * 16 + row].
// A last word that is cut short is filled with zeros.
inline void gather_words(const std::byte* const* rows, std::size_t at, std::size_t num_bytes,
                         std::uint32_t* out) {
  std::size_t done = 0;
  for (; done + 16 <= num_bytes; done += 16) {
    transpose_words(rows, at + done, out + done * 4);
    transpose_words(rows + 8, at + done, out + done * 4 + 8);
  }
  for (; done + 4 <= num_bytes; done += 4) {  // the compiler knows the length: no call of memcpy
    for (std::size_t r = 0; r < 16; ++r)
      __builtin_memcpy(out + done * 4 + r, rows[r] + at + done, 4);
  }
  if (done < num_bytes) {
    for (std::size_t r = 0; r < 16; ++r) {
      std::uint32_t word = 0;
      __builtin_memcpy(&word, rows[r] + at + done, num_bytes - done);
      out[done * 4 + r] = word;
    }
  }
}

}  // namespace flotilla::backend::FLOTILLA_CPU_TARGET
