// Everything that a model keeps for one sequence, layer by layer, as its StateLayout declares.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/state/layer_state.h"
#include "flotilla/state/page_pool.h"

namespace flotilla::state {

class SequenceState;

// The state of a sequence as it was at a position. Whole blocks are shared with the sequence (they
// are never written again), the block that the position cuts is a copy. Must not outlive the pool.
class StateSnapshot {
 public:
  std::int64_t position() const { return position_; }
  std::size_t num_pages() const;  // of its own or shared

 private:
  friend class SequenceState;
  struct Layer {
    int first_block = 0;
    std::vector<PageRef> pages = {};
  };
  std::int64_t position_ = 0;
  std::vector<Layer> layers_;
};

// Owned by the engine thread. `layout` and `pool` must outlive it.
class SequenceState {
 public:
  SequenceState(const StateLayout& layout, PagePool& pool);
  SequenceState(SequenceState&&) = default;

  // Positions whose keys and values are there.
  std::int64_t num_positions() const { return num_positions_; }

  // Makes room for positions up to `end` (exclusive) in every layer, or changes nothing and
  // returns kResourceExhausted.
  Status reserve(std::int64_t end);
  // Bytes that reserve(end) would take from the pool.
  std::size_t bytes_to_reserve(std::int64_t end) const;
  // The next `count` positions were written by a forward pass. Drops what no later query sees.
  void append(std::int64_t count);

  // One view per layer for ForwardRow::layers; valid until the next change of this object.
  std::span<const tensor::KvView> views() const { return views_; }

  // kInvalidArgument when a window has already dropped pages that `position` needs;
  // kResourceExhausted when there is no room for the copies.
  Result<StateSnapshot> snapshot(std::int64_t position) const;
  // Replaces the content. On kResourceExhausted the state is left empty.
  Status restore(const StateSnapshot& snapshot);

  // Gives every page back; the sequence is then at position 0.
  void release();

  std::size_t num_pages() const;
  std::size_t bytes() const;  // of the pages it holds; shared ones count in full

 private:
  struct Layer {
    tensor::KvGeometry geometry;
    int window = 0;  // 0: everything is kept
    bool keeps = false;
    int first_block = 0;
    std::vector<PageRef> pages = {};
    std::vector<float*> data = {};  // of `pages`
  };
  // The first block that a query at `position` or later sees.
  static int first_visible_block(const Layer& layer, std::int64_t position);
  Result<PageRef> copy_block(const Layer& layer, const PageRef& from, std::int64_t positions) const;
  void trim();
  void refresh_views();

  PagePool* pool_;
  std::vector<Layer> layers_;
  std::vector<tensor::KvView> views_;
  std::int64_t num_positions_ = 0;
};

}  // namespace flotilla::state
