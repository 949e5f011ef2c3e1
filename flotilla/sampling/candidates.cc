#include "flotilla/sampling/candidates.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace flotilla::sampling {
namespace {

using Candidate = SamplerScratch::Candidate;
using backend::precedes;

constexpr std::size_t kRadixFrom = 512;  // below, comparing is faster

// Ascending order of the result is descending order of the values.
std::uint32_t radix_key(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 becomes +0
  const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

// Stable, so that equal values keep the ascending ids in which they were collected.
void radix_sort(std::vector<Candidate>& items, std::vector<Candidate>& spare) {
  constexpr int kBits = 11;
  constexpr std::uint32_t kMask = (1u << kBits) - 1;
  spare.resize(items.size());
  for (int shift = 0; shift < 32; shift += kBits) {
    std::array<std::size_t, 1u << kBits> begin{};
    for (const Candidate& c : items) ++begin[radix_key(c.value) >> shift & kMask];
    std::size_t sum = 0;
    for (std::size_t& b : begin) {
      const std::size_t count = b;
      b = sum;
      sum += count;
    }
    for (const Candidate& c : items) spare[begin[radix_key(c.value) >> shift & kMask]++] = c;
    items.swap(spare);
  }
}

// The first `limit` in order, unsorted. Every time the buffer is full, what cannot be among them is
// dropped and the threshold rises to the last of the rest, so that few entries get in at all.
void collect_first(std::span<const float> values, double threshold, std::size_t limit,
                   std::vector<Candidate>& out) {
  const std::size_t capacity = std::max<std::size_t>(256, 4 * limit);
  const auto keep_first = [&] {
    const auto last = out.begin() + static_cast<std::ptrdiff_t>(limit - 1);
    std::nth_element(out.begin(), last, out.end(), precedes);
    out.resize(limit);
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < threshold) continue;
    out.push_back({values[i], static_cast<TokenId>(i)});
    if (out.size() < capacity) continue;
    keep_first();
    threshold = std::max<double>(threshold, out.back().value);
  }
  if (out.size() > limit) keep_first();
}

}  // namespace

std::size_t index_of_largest(std::span<const float> values) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

void collect_candidates(std::span<const float> values, double threshold, int limit,
                        SamplerScratch& scratch) {
  std::vector<Candidate>& out = scratch.candidates;
  out.clear();
  if (limit > 0 && static_cast<std::size_t>(limit) < values.size()) {
    collect_first(values, threshold, static_cast<std::size_t>(limit), out);
    std::sort(out.begin(), out.end(), precedes);
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= threshold) out.push_back({values[i], static_cast<TokenId>(i)});
  }
  if (out.size() < kRadixFrom) {
    std::sort(out.begin(), out.end(), precedes);
  } else {
    radix_sort(out, scratch.sorting);
  }
}

}  // namespace flotilla::sampling
