// What a model keeps per sequence, as a function of its length: the form in which it is compared
// with memory. The engine computes it (state/), the link carries it (protocol/); here it is used.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace flotilla::gates {

// Layers that keep the same number of positions.
struct StateCostClass {
  std::uint64_t bytes_per_token = 0;
  std::uint64_t max_tokens = 0;  // kept at most; 0: all
};

struct StateCost {
  std::uint64_t fixed_bytes = 0;
  std::vector<StateCostClass> classes = {};

  bool known() const { return fixed_bytes > 0 || !classes.empty(); }
  // 0 for length 0. A sum that does not fit is the largest number.
  std::uint64_t bytes(std::int64_t length) const;
};

inline constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();

// The longest sequence whose state fits into `room`; kAnyLength when nothing grows with it.
std::int64_t tokens_in(const StateCost& cost, std::uint64_t room);

}  // namespace flotilla::gates
