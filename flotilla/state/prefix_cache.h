// Keeps the states of finished prompts and answers, so that a prompt that begins alike need not be
// computed again. Exact: what it gives back are the bits that were computed.
//
// Whole blocks of full-attention layers form a tree; a prefix that consists of them alone may be
// taken up at any block. Where the layout has windows or fixed states, it may be taken up at
// checkpoints only: the window's last pages and the fixed states as they were at a position.
//
// Tenants share the memory. Half of what is cached is theirs in equal shares: nobody loses what he
// holds within his share while others hold more. The rest goes by worth. So a flood of one tenant
// pushes out its own, and one that is alone has nearly everything.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/state/prefix_chain.h"
#include "flotilla/state/sequence_state.h"

namespace flotilla::state {

struct PrefixCacheOptions {
  bool enabled = true;
  std::size_t max_bytes = 0;                // 0: all of the pool that sequences leave
  std::size_t max_checkpoint_bytes = 0;     // of checkpoints; 0: half of the pool
  std::int64_t checkpoint_interval = 4096;  // tokens; one more at the end of each prompt and answer
};

struct PrefixCacheStats {
  std::uint64_t hits = 0;    // sequences that took something up
  std::uint64_t misses = 0;  // and those that did not
  std::uint64_t hit_tokens = 0;
  std::uint64_t evictions = 0;
  std::uint64_t bytes = 0;             // blocks and checkpoints; shared pages count in full
  std::uint64_t checkpoint_bytes = 0;  // of checkpoints
  std::uint64_t num_blocks = 0;
  std::uint64_t num_checkpoints = 0;
};

// Owned by the engine thread. `layout` and `pool` must outlive it.
class PrefixCache {
 public:
  PrefixCache(const PrefixCacheOptions& options, const StateLayout& layout, PagePool& pool);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Node;
  struct Match {
    std::int64_t position = 0;     // where a sequence may go on
    std::int64_t known = 0;        // positions that the cache knows to be alike, whole blocks
    std::size_t pinned_bytes = 0;  // of the match, used by other sequences at this moment
    Node* node = nullptr;
  };
  // The longest match of at most `limit` positions. Valid until the next change.
  Match find(const PrefixChain& chain, std::span<const TokenId> tokens, std::int64_t limit) const;
  // The state at match.position; counts a hit or a miss. Empty for a miss.
  StateSnapshot take(const Match& match);

  // Keeps the whole blocks of `state` up to `positions` (at most). Only for layouts that keep
  // everything.
  void insert_blocks(const PrefixChain& chain, const SequenceState& state, std::int64_t positions);
  // Keeps a checkpoint of `state` and the whole blocks before it. For other layouts.
  void insert_checkpoint(const PrefixChain& chain, std::span<const TokenId> tokens,
                         const SequenceState& state, StateSnapshot checkpoint);

  // Gives up what is worth least of what nobody uses: cost to compute again, per byte, and how long
  // ago it was used (GreedyDual); of tenants that hold more than their share, if there are any.
  // False when nothing would become free.
  bool evict_one();
  // Drops everything that shares a block with the chain: its states are not to be trusted.
  void forget(const PrefixChain& chain);
  void clear();

  bool by_checkpoints() const { return by_checkpoints_; }
  std::int64_t checkpoint_interval() const { return interval_; }
  std::size_t max_checkpoint_bytes() const { return max_checkpoint_bytes_; }
  const PrefixCacheStats& stats() const { return stats_; }
  // Aborts when the books do not add up.
  void check_integrity() const;
  // Calls visit(const PageRef&) for each page.
  template <class Visit>
  void for_each_page(Visit&& visit) const;

 private:
  struct ByWorth {
    bool operator()(const Node* a, const Node* b) const;
  };
  // A tenant: all that begins with the same key.
  struct Owner {
    PrefixKey key;
    std::uint64_t bytes = 0;
    std::uint64_t num_nodes = 0;
    // What may be evicted: leaves, or nodes with a checkpoint.
    std::set<Node*, ByWorth> queue;
  };

  Node* lookup(const PrefixKey& key) const;
  Node* grow(const PrefixChain& chain, const SequenceState& state, int num_blocks);
  Node* add_node(Owner& owner, const PrefixKey& key, Node* parent, std::int64_t end);
  Owner& owner_of(const PrefixChain& chain);
  bool within_share(const Owner& owner) const;
  // What is worth least of all that passes `filter`, of tenants above their share before others.
  template <class Filter>
  Node* victim(Filter&& filter) const;
  void count_bytes(Owner& owner, std::int64_t bytes);
  void remove_leaf(Node* node);
  void drop_checkpoint(Node* node);
  void prune(Node* node);  // and its ancestors, as far as they are of no use
  void evict(Node* node);
  void keep_to_budget();
  bool frees_memory(const Node& node) const;
  double worth(const Node& node) const;
  void touch(Node* node);
  void enqueue(Node* node);
  void dequeue(Node* node);

  PagePool& pool_;
  const std::size_t num_layers_;
  std::vector<std::size_t> paged_layers_;
  std::size_t block_bytes_ = 0;  // of one block of all full-attention layers
  const bool by_checkpoints_;
  const std::size_t max_bytes_;
  const std::size_t max_checkpoint_bytes_;
  const std::int64_t interval_;
  std::unordered_map<PrefixKey, std::unique_ptr<Node>, PrefixKeyHash> nodes_;
  std::unordered_map<PrefixKey, std::unique_ptr<Owner>, PrefixKeyHash> owners_;
  double clock_ = 0;  // the worth of what was evicted last
  std::uint64_t tick_ = 0;
  PrefixCacheStats stats_;
};

// A block of tokens after its parent's; or a checkpoint inside the block that would follow.
struct PrefixCache::Node {
  PrefixKey key;
  Owner* owner = nullptr;
  Node* parent = nullptr;
  std::int64_t end = 0;  // positions up to here
  std::vector<Node*> children;
  std::vector<PageRef> pages;  // one per full-attention layer; none inside a block
  std::optional<StateSnapshot> checkpoint;
  std::size_t checkpoint_bytes = 0;
  double priority = 0;
  std::uint64_t tick = 0;
  bool queued = false;

  bool is_tail() const { return end % tensor::kKvBlock != 0; }
};

template <class Visit>
void PrefixCache::for_each_page(Visit&& visit) const {
  for (const auto& [key, node] : nodes_) {
    for (const PageRef& page : node->pages) visit(page);
    if (!node->checkpoint) continue;
    for (const StateSnapshot::Layer& layer : node->checkpoint->layers) {
      for (const PageRef& page : layer.pages) visit(page);
    }
  }
}

}  // namespace flotilla::state
