// Pages of one sequence on the card, without a pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/state/layer_state.h"

namespace flotilla::cuda_check {

class DeviceKv {
 public:
  // Room for positions [0, length); of window layers only those that queries from `first_position`
  // on see. `noise`: bytes that fill the pages, repeated; empty: zeros.
  DeviceKv(backend::Backend& backend, const state::StateLayout& layout, std::int64_t length,
           std::int64_t first_position = 0, const backend::Tensor& noise = {});
  std::span<const tensor::KvView> views() const { return views_; }

 private:
  struct Layer {
    std::shared_ptr<tensor::Buffer> memory;
    std::vector<float*> pages;
  };
  std::vector<Layer> layers_;
  std::vector<tensor::KvView> views_;
};

// One layer's pages, for checks of operations.
struct DevicePages {
  DevicePages(backend::Backend& backend, const tensor::KvGeometry& geometry, int first_block,
              int num_blocks);
  tensor::KvView view() const {
    return {pages.data(), first_block, static_cast<int>(pages.size())};
  }
  std::shared_ptr<tensor::Buffer> memory;
  std::vector<float*> pages;
  int first_block;
};

}  // namespace flotilla::cuda_check
