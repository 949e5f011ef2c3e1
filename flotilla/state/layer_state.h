// What a model keeps per sequence, declared layer by layer. The engine works through these declarations and knows no
// model names.
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
// A layer that keeps nothing of its own (it reads another layer's state).
struct NoState {};

using LayerState = std::variant<PagedKv, WindowKv, NoState>;

// The whole model, layer 0 first.
struct StateLayout {
  std::vector<LayerState> layers;

  // Bytes that a sequence of `length` tokens occupies, in whole pages. Monotonic in length.
  std::size_t bytes(std::int64_t length) const;
};

}  // namespace flotilla::state
