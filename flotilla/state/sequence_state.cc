#include "flotilla/state/sequence_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "flotilla/base/check.h"
#include "flotilla/base/overloaded.h"

namespace flotilla::state {
namespace {

using tensor::kKvBlock;

int block_of(std::int64_t position) { return static_cast<int>(position / kKvBlock); }
int blocks_of(std::int64_t positions) {
  return static_cast<int>((positions + kKvBlock - 1) / kKvBlock);
}

// Copies the first `positions` keys and values of a block; the rest of `to` is zero already.
void copy_positions(const tensor::KvGeometry& geometry, const float* from, float* to,
                    std::int64_t positions) {
  const auto keys = static_cast<std::size_t>(positions);
  const auto dim = static_cast<std::size_t>(geometry.head_dim);
  for (int head = 0; head < geometry.num_kv_heads; ++head) {
    const std::size_t k = kv_k_offset(geometry, head);
    for (std::size_t d = 0; d < dim; ++d) {
      std::memcpy(to + k + d * kKvBlock, from + k + d * kKvBlock, keys * sizeof(float));
    }
    const std::size_t v = kv_v_offset(geometry, head);
    std::memcpy(to + v, from + v, keys * dim * sizeof(float));
  }
}

}  // namespace

std::size_t StateSnapshot::num_pages() const {
  std::size_t count = 0;
  for (const Layer& layer : layers_) count += layer.pages.size();
  return count;
}

SequenceState::SequenceState(const StateLayout& layout, PagePool& pool) : pool_(&pool) {
  for (const LayerState& declared : layout.layers) {
    layers_.push_back(std::visit(
        Overloaded{
            [](const PagedKv& kv) { return Layer{.geometry = kv.geometry, .keeps = true}; },
            [](const WindowKv& kv) {
              FLOTILLA_CHECK(kv.window > 0, "a window layer without a window");
              return Layer{.geometry = kv.geometry, .window = kv.window, .keeps = true};
            },
            [](const NoState&) { return Layer{.geometry = {}}; },
        },
        declared));
  }
  refresh_views();
}

int SequenceState::first_visible_block(const Layer& layer, std::int64_t position) {
  if (layer.window == 0) return 0;
  return block_of(std::max<std::int64_t>(0, position - layer.window + 1));
}

std::size_t SequenceState::bytes_to_reserve(std::int64_t end) const {
  std::size_t bytes = 0;
  for (const Layer& layer : layers_) {
    if (!layer.keeps) continue;
    const int have = layer.first_block + static_cast<int>(layer.pages.size());
    const int missing = std::max(0, blocks_of(end) - have);
    bytes += static_cast<std::size_t>(missing) * kv_page_bytes(layer.geometry);
  }
  return bytes;
}

Status SequenceState::reserve(std::int64_t end) {
  FLOTILLA_CHECK(end >= num_positions_, "a sequence does not shrink");
  std::vector<std::size_t> before;
  before.reserve(layers_.size());
  for (const Layer& layer : layers_) before.push_back(layer.pages.size());
  for (Layer& layer : layers_) {
    if (!layer.keeps) continue;
    while (layer.first_block + static_cast<int>(layer.pages.size()) < blocks_of(end)) {
      Result<PageRef> page = pool_->acquire(layer.geometry);
      if (!page.ok()) {
        for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i].pages.resize(before[i]);
        return std::move(page).error();
      }
      layer.pages.push_back(std::move(page).value());
    }
  }
  refresh_views();
  return ok_status();
}

void SequenceState::append(std::int64_t count) {
  num_positions_ += count;
  for (const Layer& layer : layers_) {
    const int have = layer.first_block + static_cast<int>(layer.pages.size());
    FLOTILLA_CHECK(!layer.keeps || have >= blocks_of(num_positions_),
                   "positions appended without room");
  }
  trim();
}

// The next query is at num_positions_.
void SequenceState::trim() {
  bool changed = false;
  for (Layer& layer : layers_) {
    if (layer.window == 0) continue;
    const int first = first_visible_block(layer, num_positions_);
    const auto drop = static_cast<std::ptrdiff_t>(std::min<std::size_t>(
        static_cast<std::size_t>(std::max(0, first - layer.first_block)), layer.pages.size()));
    if (drop == 0) continue;
    layer.pages.erase(layer.pages.begin(), layer.pages.begin() + drop);
    layer.first_block += static_cast<int>(drop);
    changed = true;
  }
  if (changed) refresh_views();
}

Result<PageRef> SequenceState::copy_block(const Layer& layer, const PageRef& from,
                                          std::int64_t positions) const {
  FLOTILLA_TRY(PageRef copy, pool_->acquire(layer.geometry));
  copy_positions(layer.geometry, from.data(), copy.data(), positions);
  return copy;
}

Result<StateSnapshot> SequenceState::snapshot(std::int64_t position) const {
  FLOTILLA_CHECK(position >= 0 && position <= num_positions_, "snapshot beyond the sequence");
  StateSnapshot out;
  out.position_ = position;
  out.layers_.resize(layers_.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    if (!layer.keeps) continue;
    StateSnapshot::Layer& saved = out.layers_[i];
    saved.first_block = first_visible_block(layer, position);
    if (saved.first_block < layer.first_block && position > 0) {
      return Error{ErrorCode::kInvalidArgument,
                   "a window has moved past position " + std::to_string(position)};
    }
    const int end = blocks_of(position);
    for (int block = saved.first_block; block < end; ++block) {
      const PageRef& page = layer.pages[static_cast<std::size_t>(block - layer.first_block)];
      const std::int64_t filled = position - std::int64_t{block} * kKvBlock;
      if (filled >= kKvBlock) {
        saved.pages.push_back(page.share());
      } else {
        FLOTILLA_TRY(PageRef copy, copy_block(layer, page, filled));
        saved.pages.push_back(std::move(copy));
      }
    }
  }
  return out;
}

Status SequenceState::restore(const StateSnapshot& snapshot) {
  FLOTILLA_CHECK(snapshot.layers_.size() == layers_.size(), "snapshot of another layout");
  release();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const StateSnapshot::Layer& saved = snapshot.layers_[i];
    layer.first_block = saved.first_block;
    for (std::size_t p = 0; p < saved.pages.size(); ++p) {
      const std::int64_t begin = (std::int64_t{saved.first_block} + static_cast<int>(p)) * kKvBlock;
      const std::int64_t filled = snapshot.position_ - begin;
      if (filled >= kKvBlock) {
        layer.pages.push_back(saved.pages[p].share());
        continue;
      }
      Result<PageRef> copy = copy_block(layer, saved.pages[p], filled);
      if (!copy.ok()) {
        release();
        return std::move(copy).error();
      }
      layer.pages.push_back(std::move(copy).value());
    }
  }
  num_positions_ = snapshot.position_;
  refresh_views();
  return ok_status();
}

void SequenceState::release() {
  for (Layer& layer : layers_) {
    layer.pages.clear();
    layer.first_block = 0;
  }
  num_positions_ = 0;
  refresh_views();
}

std::size_t SequenceState::num_pages() const {
  std::size_t count = 0;
  for (const Layer& layer : layers_) count += layer.pages.size();
  return count;
}

std::size_t SequenceState::bytes() const {
  std::size_t total = 0;
  for (const Layer& layer : layers_) total += layer.pages.size() * kv_page_bytes(layer.geometry);
  return total;
}

void SequenceState::refresh_views() {
  views_.clear();
  for (Layer& layer : layers_) {
    layer.data.clear();
    for (const PageRef& page : layer.pages) layer.data.push_back(page.data());
    views_.push_back({.pages = layer.data.data(),
                      .first_block = layer.first_block,
                      .num_blocks = static_cast<int>(layer.data.size())});
  }
}

}  // namespace flotilla::state
