// The bytes of a sequence's state as a function of its length, in a form that can be sent.
#pragma once

#include <cstdint>
#include <vector>

#include "flotilla/state/layer_state.h"

namespace flotilla::state {

// Layers that keep the same number of positions.
struct StateCostClass {
  std::uint64_t bytes_per_token = 0;
  std::uint64_t max_tokens = 0;  // kept at most; 0: all
  bool operator==(const StateCostClass&) const = default;
};

// Never less than StateLayout::peak_bytes(), and at most one block per layer more. Small caps
// first.
struct StateCost {
  std::uint64_t fixed_bytes = 0;  // fixed states, and the unused part of each layer's last page
  std::vector<StateCostClass> classes = {};
  std::uint64_t bytes(std::int64_t length) const;  // 0 for length 0
};

// `chunk`: the most tokens that one step adds. At most `max_classes` classes; when there are more
// caps, those nearest to each other are taken together at the greater one.
StateCost state_cost(const StateLayout& layout, std::int64_t chunk, std::size_t max_classes = 16);

}  // namespace flotilla::state
