#include "flotilla/state/layer_state.h"

#include <algorithm>

#include "flotilla/base/overloaded.h"

namespace flotilla::state {
namespace {

std::int64_t blocks_of(std::int64_t positions) {
  return (positions + tensor::kKvBlock - 1) / tensor::kKvBlock;
}

// Pages of one layer. A window is kept from the start of the block that the next position is in, so
// that the state at that start can be saved.
std::size_t layer_bytes(const LayerState& layer, std::int64_t length, std::int64_t chunk) {
  if (length <= 0) return 0;
  return std::visit(Overloaded{
                        [&](const PagedKv& kv) {
                          return static_cast<std::size_t>(blocks_of(length)) *
                                 kv_page_bytes(kv.geometry);
                        },
                        [&](const WindowKv& kv) {
                          const std::int64_t most =
                              blocks_of(kv.window - 1) + blocks_of(chunk + tensor::kKvBlock - 1);
                          return static_cast<std::size_t>(std::min(blocks_of(length), most)) *
                                 kv_page_bytes(kv.geometry);
                        },
                        [&](const FixedState&) { return page_bytes(layer); },
                        [](const NoState&) { return std::size_t{0}; },
                    },
                    layer);
}

}  // namespace

std::size_t page_bytes(const LayerState& layer) {
  return std::visit(Overloaded{
                        [](const PagedKv& kv) { return kv_page_bytes(kv.geometry); },
                        [](const WindowKv& kv) { return kv_page_bytes(kv.geometry); },
                        [](const FixedState& f) {
                          return static_cast<std::size_t>(f.num_floats) * sizeof(float);
                        },
                        [](const NoState&) { return std::size_t{0}; },
                    },
                    layer);
}

bool StateLayout::has_fixed() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerState& layer) {
    return std::holds_alternative<FixedState>(layer);
  });
}

bool StateLayout::keeps_everything() const {
  return std::none_of(layers.begin(), layers.end(), [](const LayerState& layer) {
    return std::holds_alternative<FixedState>(layer) || std::holds_alternative<WindowKv>(layer);
  });
}

std::size_t StateLayout::bytes(std::int64_t length) const { return peak_bytes(length, 0); }

std::size_t StateLayout::peak_bytes(std::int64_t length, std::int64_t chunk) const {
  std::size_t total = 0;
  for (const LayerState& layer : layers) total += layer_bytes(layer, length, chunk);
  return total;
}

std::int64_t StateLayout::max_length(std::size_t budget, std::int64_t chunk,
                                     std::int64_t limit) const {
  std::int64_t fits = 0;
  std::int64_t beyond = limit + 1;
  while (fits + 1 < beyond) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    (peak_bytes(middle, chunk) <= budget ? fits : beyond) = middle;
  }
  return fits;
}

}  // namespace flotilla::state
