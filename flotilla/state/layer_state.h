// What a model keeps per sequence, declared layer by layer. The engine works through these
// declarations and knows no model names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "flotilla/tensor/kv_layout.h"

namespace flotilla::state {

// Full attention: every position is kept.
struct PagedKv {
  tensor::KvGeometry geometry;
};
// Sliding attention: a query sees `window` positions including its own.
struct WindowKv {
  tensor::KvGeometry geometry;
  int window = 0;
};
// A recurrent or convolution state: float32 values that each step replaces. It exists only as of
// the last position, so it can be saved there and nowhere else. The model gets it as the one page
// of its view; before position 0 it is zero.
struct FixedState {
  std::int64_t num_floats = 0;
};
// A layer that keeps nothing of its own (it reads another layer's state).
struct NoState {};

using LayerState = std::variant<PagedKv, WindowKv, FixedState, NoState>;

// Bytes of a page of the layer; 0 when it keeps nothing.
std::size_t page_bytes(const LayerState& layer);

// The whole model, layer 0 first.
struct StateLayout {
  std::vector<LayerState> layers;

  bool has_fixed() const;
  // Every layer keeps every position, so that the state of any earlier block is at hand.
  bool keeps_everything() const;

  // Bytes that a sequence of `length` tokens occupies, in whole pages. Monotonic in length.
  std::size_t bytes(std::int64_t length) const;
  // The most that it occupies while it grows to `length` by at most `chunk` tokens at a time:
  // a window keeps its own span and the chunk at once.
  std::size_t peak_bytes(std::int64_t length, std::int64_t chunk) const;
  // The longest sequence whose peak fits in `budget` bytes, at most `limit`.
  std::int64_t max_length(std::size_t budget, std::int64_t chunk, std::int64_t limit) const;
};

}  // namespace flotilla::state
