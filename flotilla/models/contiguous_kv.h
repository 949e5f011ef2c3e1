// The simplest owner of key-value pages: one sequence, no pool. For tests and tools that run a
// model without an engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/state/layer_state.h"
#include "flotilla/tensor/tensor.h"

namespace flotilla::models {

class ContiguousKv {
 public:
  // Room for `max_length` tokens in every layer. Pages start with `fill`, so that a read of a key
  // that was never written shows: results must not depend on it.
  ContiguousKv(const state::StateLayout& layout, std::int64_t max_length, float fill = 0.0f);

  // Views for a step whose first token is at `first_position`. Window layers lose the pages in
  // front of the window, which are overwritten with `fill`.
  std::span<const tensor::KvView> views(std::int64_t first_position);

 private:
  struct Layer {
    tensor::KvGeometry geometry;
    int window = 0;  // 0: everything is kept
    tensor::Tensor storage;
    std::vector<float*> pages;
    int first_block = 0;
  };
  float fill_;
  std::vector<Layer> layers_;
  std::vector<tensor::KvView> views_;
};

}  // namespace flotilla::models
