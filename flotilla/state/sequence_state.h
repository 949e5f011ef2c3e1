// Everything that a model keeps for one sequence, layer by layer, as its StateLayout declares.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/state/layer_state.h"
#include "flotilla/state/page_pool.h"

namespace flotilla::state {

// The state of a sequence as it was at a position. Whole blocks are shared with the sequence (they
// are never written again); the block that the position cuts and fixed states are copies. Must not
// outlive the pool.
struct StateSnapshot {
  struct Layer {
    int first_block = 0;
    std::vector<PageRef> pages = {};
  };
  std::int64_t position = 0;
  std::vector<Layer> layers = {};

  std::size_t num_pages() const;  // of its own or shared
  std::size_t bytes() const;      // of those
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
  // The next `count` positions were written by a forward pass. Until trim(), windows still hold
  // what the states at all of these positions need.
  void advance(std::int64_t count);
  // Drops what neither a later query nor a snapshot at the start of the current block needs.
  void trim();
  void append(std::int64_t count) {
    advance(count);
    trim();
  }

  // One view per layer for ForwardRow::layers; valid until the next change of this object, or the
  // next page that anybody takes from the pool.
  std::span<const tensor::KvView> views() const;

  // kInvalidArgument when a window has already dropped pages that `position` needs, or a fixed
  // state has gone on; kResourceExhausted when there is no room for the copies.
  Result<StateSnapshot> snapshot(std::int64_t position) const;
  // The part of a snapshot that a prefix cache keeps per position: without the whole blocks of
  // full-attention layers. Its references are a cache's.
  Result<StateSnapshot> checkpoint(std::int64_t position) const;
  // Replaces the content. On kResourceExhausted the state is left empty.
  Status restore(const StateSnapshot& snapshot);

  // A block that a layer holds, or nullptr.
  const PageRef* page(std::size_t layer, int block) const;
  // True when the room for positions from num_positions() on is shared with nobody.
  bool tail_is_exclusive() const;

  // Changes when the pages are given back or replaced.
  std::uint64_t epoch() const { return epoch_; }
  // Gives every page back; the sequence is then at position 0.
  void release();

  std::size_t num_pages() const;
  std::size_t bytes() const;  // of the pages it holds; shared ones count in full
  // Calls visit(const PageRef&) for each page.
  template <class Visit>
  void for_each_page(Visit&& visit) const {
    for (const Layer& layer : layers_) {
      for (const PageRef& page : layer.pages) visit(page);
    }
  }

 private:
  enum class Kind { kPaged, kWindow, kFixed, kNone };
  struct Layer {
    Kind kind = Kind::kNone;
    tensor::KvGeometry geometry = {};
    std::size_t page_bytes = 0;
    int window = 0;  // of kWindow
    int first_block = 0;
    std::vector<PageRef> pages = {};
    mutable std::vector<float*> data = {};  // of `pages`, as of seen_moves_

    int end_block() const { return first_block + static_cast<int>(pages.size()); }
    // Pages that are missing for positions up to `end`.
    int missing(std::int64_t end) const;
    // The first block that a query at `position` or later sees.
    int first_visible_block(std::int64_t position) const;
  };
  enum class Part { kAll, kCheckpoint };
  Result<StateSnapshot> save(std::int64_t position, Part part) const;
  Status save_layer(const Layer& layer, std::int64_t position, Part part,
                    StateSnapshot::Layer& saved) const;
  // The first `positions` of a block, or the whole of a fixed state.
  Result<PageRef> copy_page(const Layer& layer, const PageRef& from, std::int64_t positions) const;
  void refresh_views() const;

  PagePool* pool_;
  std::vector<Layer> layers_;
  mutable std::vector<tensor::KvView> views_;
  std::int64_t num_positions_ = 0;
  std::uint64_t epoch_ = 0;
  mutable std::uint64_t seen_moves_ = 0;  // of the pool, in views_
};

}  // namespace flotilla::state
