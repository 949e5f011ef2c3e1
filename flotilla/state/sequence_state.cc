#include "flotilla/state/sequence_state.h"

#include <algorithm>
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

}  // namespace

std::size_t StateSnapshot::num_pages() const {
  std::size_t count = 0;
  for (const Layer& layer : layers) count += layer.pages.size();
  return count;
}

std::size_t StateSnapshot::bytes() const {
  std::size_t total = 0;
  for (const Layer& layer : layers) {
    for (const PageRef& page : layer.pages) total += page.bytes();
  }
  return total;
}

SequenceState::SequenceState(const StateLayout& layout, PagePool& pool) : pool_(&pool) {
  for (const LayerState& declared : layout.layers) {
    Layer layer = std::visit(
        Overloaded{
            [](const PagedKv& kv) { return Layer{.kind = Kind::kPaged, .geometry = kv.geometry}; },
            [](const WindowKv& kv) {
              FLOTILLA_CHECK(kv.window > 0, "a window layer without a window");
              return Layer{.kind = Kind::kWindow, .geometry = kv.geometry, .window = kv.window};
            },
            [](const FixedState& fixed) {
              FLOTILLA_CHECK(fixed.num_floats > 0, "a fixed state without values");
              return Layer{.kind = Kind::kFixed};
            },
            [](const NoState&) { return Layer{}; },
        },
        declared);
    layer.page_bytes = page_bytes(declared);
    layers_.push_back(std::move(layer));
  }
  refresh_views();
}

int SequenceState::Layer::first_visible_block(std::int64_t position) const {
  if (kind != Kind::kWindow) return 0;
  return block_of(std::max<std::int64_t>(0, position - window + 1));
}

int SequenceState::Layer::missing(std::int64_t end) const {
  if (kind == Kind::kNone) return 0;
  const int wanted = kind == Kind::kFixed ? std::min(1, blocks_of(end)) : blocks_of(end);
  return std::max(0, wanted - end_block());
}

std::size_t SequenceState::bytes_to_reserve(std::int64_t end) const {
  std::size_t bytes = 0;
  for (const Layer& layer : layers_) {
    bytes += static_cast<std::size_t>(layer.missing(end)) * layer.page_bytes;
  }
  return bytes;
}

Status SequenceState::reserve(std::int64_t end) {
  FLOTILLA_CHECK(end >= num_positions_, "a sequence does not shrink");
  std::vector<std::size_t> before;
  before.reserve(layers_.size());
  for (const Layer& layer : layers_) before.push_back(layer.pages.size());
  bool changed = false;
  for (Layer& layer : layers_) {
    for (int n = layer.missing(end); n > 0; --n) {
      Result<PageRef> page = pool_->acquire(layer.page_bytes);
      if (!page.ok()) {
        for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i].pages.resize(before[i]);
        return std::move(page).error();
      }
      layer.pages.push_back(std::move(page).value());
      changed = true;
    }
  }
  if (changed) refresh_views();
  return ok_status();
}

void SequenceState::advance(std::int64_t count) {
  num_positions_ += count;
  for (const Layer& layer : layers_) {
    FLOTILLA_CHECK(layer.missing(num_positions_) == 0, "positions appended without room");
  }
}

// The next query is at num_positions_.
void SequenceState::trim() {
  bool changed = false;
  const std::int64_t block_start = num_positions_ / kKvBlock * kKvBlock;
  for (Layer& layer : layers_) {
    if (layer.kind != Kind::kWindow) continue;
    const int first = layer.first_visible_block(block_start);
    const auto drop = static_cast<std::ptrdiff_t>(std::min<std::size_t>(
        static_cast<std::size_t>(std::max(0, first - layer.first_block)), layer.pages.size()));
    if (drop == 0) continue;
    layer.pages.erase(layer.pages.begin(), layer.pages.begin() + drop);
    layer.first_block += static_cast<int>(drop);
    changed = true;
  }
  if (changed) refresh_views();
}

Result<PageRef> SequenceState::copy_page(const Layer& layer, const PageRef& from,
                                         std::int64_t positions) const {
  FLOTILLA_TRY(PageRef copy, pool_->acquire(layer.page_bytes));
  if (layer.kind == Kind::kFixed) {
    pool_->copy(copy, from);
  } else {
    pool_->copy_positions(layer.geometry, copy, from, positions);
  }
  return copy;
}

Result<StateSnapshot> SequenceState::snapshot(std::int64_t position) const {
  return save(position, Part::kAll);
}

Result<StateSnapshot> SequenceState::checkpoint(std::int64_t position) const {
  return save(position, Part::kCheckpoint);
}

Result<StateSnapshot> SequenceState::save(std::int64_t position, Part part) const {
  FLOTILLA_CHECK(position >= 0 && position <= num_positions_, "snapshot beyond the sequence");
  StateSnapshot out;
  out.position = position;
  out.layers.resize(layers_.size());
  if (position == 0) return out;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    FLOTILLA_TRY_STATUS(save_layer(layers_[i], position, part, out.layers[i]));
  }
  return out;
}

Status SequenceState::save_layer(const Layer& layer, std::int64_t position, Part part,
                                 StateSnapshot::Layer& saved) const {
  if (layer.kind == Kind::kNone) return ok_status();
  const auto keep = [&](PageRef page) {
    saved.pages.push_back(part == Part::kCheckpoint ? page.share_with_cache() : std::move(page));
  };
  if (layer.kind == Kind::kFixed) {
    if (position != num_positions_) {
      return Error{ErrorCode::kInvalidArgument,
                   "a fixed state has gone past position " + std::to_string(position)};
    }
    FLOTILLA_TRY(PageRef copy, copy_page(layer, layer.pages.front(), 0));
    keep(std::move(copy));
    return ok_status();
  }
  saved.first_block = layer.first_visible_block(position);
  if (saved.first_block < layer.first_block) {
    return Error{ErrorCode::kInvalidArgument,
                 "a window has moved past position " + std::to_string(position)};
  }
  if (part == Part::kCheckpoint && layer.kind == Kind::kPaged) {
    saved.first_block = block_of(position);
  }
  for (int block = saved.first_block; block < blocks_of(position); ++block) {
    const PageRef& page = layer.pages[static_cast<std::size_t>(block - layer.first_block)];
    const std::int64_t filled = position - std::int64_t{block} * kKvBlock;
    if (filled >= kKvBlock) {
      keep(page.share());
    } else {
      FLOTILLA_TRY(PageRef copy, copy_page(layer, page, filled));
      keep(std::move(copy));
    }
  }
  return ok_status();
}

Status SequenceState::restore(const StateSnapshot& snapshot) {
  FLOTILLA_CHECK(snapshot.layers.size() == layers_.size(), "snapshot of another layout");
  release();
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const StateSnapshot::Layer& saved = snapshot.layers[i];
    layer.first_block = saved.first_block;
    for (std::size_t p = 0; p < saved.pages.size(); ++p) {
      const std::int64_t begin = (std::int64_t{saved.first_block} + static_cast<int>(p)) * kKvBlock;
      const std::int64_t filled = snapshot.position - begin;
      if (filled >= kKvBlock && layer.kind != Kind::kFixed) {
        layer.pages.push_back(saved.pages[p].share());
        continue;
      }
      Result<PageRef> copy = copy_page(layer, saved.pages[p], filled);
      if (!copy.ok()) {
        release();
        return std::move(copy).error();
      }
      layer.pages.push_back(std::move(copy).value());
    }
  }
  num_positions_ = snapshot.position;
  refresh_views();
  return ok_status();
}

const PageRef* SequenceState::page(std::size_t layer, int block) const {
  const Layer& from = layers_[layer];
  if (block < from.first_block || block >= from.end_block()) return nullptr;
  return &from.pages[static_cast<std::size_t>(block - from.first_block)];
}

bool SequenceState::tail_is_exclusive() const {
  for (const Layer& layer : layers_) {
    const int first = layer.kind == Kind::kFixed ? 0 : block_of(num_positions_);
    for (int block = first; block < layer.end_block(); ++block) {
      if (!layer.pages[static_cast<std::size_t>(block - layer.first_block)].exclusive())
        return false;
    }
  }
  return true;
}

void SequenceState::release() {
  ++epoch_;
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
  for (const Layer& layer : layers_) total += layer.pages.size() * layer.page_bytes;
  return total;
}

std::span<const tensor::KvView> SequenceState::views() const {
  if (seen_moves_ != pool_->num_moves()) refresh_views();
  return views_;
}

void SequenceState::refresh_views() const {
  seen_moves_ = pool_->num_moves();
  views_.clear();
  for (const Layer& layer : layers_) {
    layer.data.clear();
    for (const PageRef& page : layer.pages) layer.data.push_back(page.data());
    views_.push_back({.pages = layer.data.data(),
                      .first_block = layer.first_block,
                      .num_blocks = static_cast<int>(layer.data.size())});
  }
}

}  // namespace flotilla::state
