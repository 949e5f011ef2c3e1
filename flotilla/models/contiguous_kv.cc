#include "flotilla/models/contiguous_kv.h"

#include <algorithm>
#include <variant>

#include "flotilla/base/overloaded.h"

namespace flotilla::models {
using tensor::Shape;
using tensor::Tensor;

ContiguousKv::ContiguousKv(const state::StateLayout& layout, std::int64_t max_length, float fill)
    : fill_(fill) {
  const std::int64_t num_blocks = (max_length + tensor::kKvBlock - 1) / tensor::kKvBlock;
  for (const state::LayerState& state : layout.layers) {
    Layer layer;
    std::visit(Overloaded{[&](const state::PagedKv& kv) { layer.geometry = kv.geometry; },
                          [&](const state::WindowKv& kv) {
                            layer.geometry = kv.geometry;
                            layer.window = kv.window;
                          },
                          [](const state::FixedState&) {}, [](const state::NoState&) {}},
               state);
    const bool fixed = std::holds_alternative<state::FixedState>(state);
    const std::size_t page = state::page_bytes(state) / sizeof(float);
    if (page > 0) {
      const std::size_t floats = page * static_cast<std::size_t>(fixed ? 1 : num_blocks);
      layer.storage = Tensor(tensor::make_host_buffer(floats * sizeof(float)), 0,
                             Shape{static_cast<std::int64_t>(floats)}, tensor::DType::kF32);
      std::fill_n(layer.storage.data<float>(), floats, fixed ? 0.0f : fill);
      for (std::int64_t i = 0; i < (fixed ? 1 : num_blocks); ++i) {
        layer.pages.push_back(layer.storage.data<float>() + static_cast<std::size_t>(i) * page);
      }
    }
    layers_.push_back(std::move(layer));
  }
  views_.resize(layers_.size());
}

std::span<const tensor::KvView> ContiguousKv::views(std::int64_t first_position) {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    if (layer.pages.empty()) continue;
    if (layer.window > 0) {
      const std::int64_t oldest = std::max<std::int64_t>(0, first_position - layer.window + 1);
      const int first = static_cast<int>(oldest / tensor::kKvBlock);
      for (; layer.first_block < first; ++layer.first_block) {
        std::fill_n(layer.pages[static_cast<std::size_t>(layer.first_block)],
                    tensor::kv_page_floats(layer.geometry), fill_);
      }
    }
    views_[l] = {.pages = layer.pages.data() + layer.first_block,
                 .first_block = layer.first_block,
                 .num_blocks = static_cast<int>(layer.pages.size()) - layer.first_block};
  }
  return views_;
}

}  // namespace flotilla::models
