#include "flotilla/gates/state_cost.h"

#include <algorithm>

namespace flotilla::gates {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
// Longer than any context. Bounds the search.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 48;

std::uint64_t add(std::uint64_t a, std::uint64_t b) { return a > kMost - b ? kMost : a + b; }
std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  return b != 0 && a > kMost / b ? kMost : a * b;
}

}  // namespace

std::uint64_t StateCost::bytes(std::int64_t length) const {
  if (length <= 0) return 0;
  std::uint64_t total = fixed_bytes;
  for (const StateCostClass& c : classes) {
    const auto tokens = static_cast<std::uint64_t>(length);
    total = add(total, times(c.bytes_per_token,
                             c.max_tokens == 0 ? tokens : std::min(tokens, c.max_tokens)));
  }
  return total;
}

std::int64_t tokens_in(const StateCost& cost, std::uint64_t room) {
  if (cost.bytes(1) > room) return 0;
  if (cost.bytes(kMostTokens) <= room) return kAnyLength;
  std::int64_t fits = 1, too_long = kMostTokens;
  while (too_long - fits > 1) {
    const std::int64_t middle = fits + (too_long - fits) / 2;
    (cost.bytes(middle) <= room ? fits : too_long) = middle;
  }
  return fits;
}

}  // namespace flotilla::gates
