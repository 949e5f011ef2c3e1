// The inner loop of byte-pair encoding: merges neighbours in order of rank, equal ranks from the
// left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/tokenizer/pair_table.h"

namespace flotilla::tokenizer {

// Up to here a scan for the lowest rank is faster than any queue.
inline constexpr std::size_t kShortWord = 40;
// Up to here one heap of all candidates stays in the cache.
inline constexpr std::size_t kMediumWord = 2048;

// Working memory, kept between calls.
struct MergeBuffer {
  struct Candidate {      // two neighbours that may merge
    std::uint64_t order;  // rank, then position
    TokenId product;
  };
  std::vector<std::uint32_t> next;  // the symbol behind each one
  std::vector<std::uint32_t> previous;
  std::vector<Candidate> heap;
};

// Appends what becomes of `symbols`, which is used as working memory too. Its size is below 2^32.
void merge_symbols(const PairTable& merges, std::span<TokenId> symbols, std::vector<TokenId>& out,
                   MergeBuffer& buffer);

}  // namespace flotilla::tokenizer
