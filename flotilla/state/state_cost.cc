#include "flotilla/state/state_cost.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <variant>

namespace flotilla::state {

using tensor::kKvBlock;

std::uint64_t StateCost::bytes(std::int64_t length) const {
  if (length <= 0) return 0;
  std::uint64_t total = fixed_bytes;
  for (const StateCostClass& c : classes) {
    const auto tokens = static_cast<std::uint64_t>(length);
    total += c.bytes_per_token * (c.max_tokens == 0 ? tokens : std::min(tokens, c.max_tokens));
  }
  return total;
}

StateCost state_cost(const StateLayout& layout, std::int64_t chunk, std::size_t max_classes) {
  StateCost cost;
  std::map<std::uint64_t, std::uint64_t> by_cap;  // bytes per token; no cap is the key ~0
  for (const LayerState& layer : layout.layers) {
    if (std::holds_alternative<FixedState>(layer)) cost.fixed_bytes += page_bytes(layer);
    if (!std::holds_alternative<PagedKv>(layer) && !std::holds_alternative<WindowKv>(layer))
      continue;
    const std::uint64_t per_token = page_bytes(layer) / kKvBlock;
    std::uint64_t cap = ~std::uint64_t{0};
    if (std::holds_alternative<WindowKv>(layer)) {
      const StateLayout alone{.layers = {layer}};
      cap = alone.peak_bytes(std::int64_t{1} << 40, chunk) / per_token;
    }
    by_cap[cap] += per_token;
    cost.fixed_bytes += per_token * (kKvBlock - 1);
  }
  while (by_cap.size() > std::max<std::size_t>(max_classes, 1)) {
    auto nearest = by_cap.begin();
    for (auto it = by_cap.begin(); std::next(it) != by_cap.end(); ++it) {
      if (std::next(it)->first - it->first < std::next(nearest)->first - nearest->first)
        nearest = it;
    }
    std::next(nearest)->second += nearest->second;
    by_cap.erase(nearest);
  }
  for (const auto& [cap, per_token] : by_cap) {
    cost.classes.push_back(
        {.bytes_per_token = per_token, .max_tokens = cap == ~std::uint64_t{0} ? 0 : cap});
  }
  return cost;
}

}  // namespace flotilla::state
