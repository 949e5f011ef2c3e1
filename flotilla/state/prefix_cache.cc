#include "flotilla/state/prefix_cache.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "flotilla/base/check.h"

namespace flotilla::state {
namespace {

using tensor::kKvBlock;

std::int64_t whole_blocks(std::int64_t positions) { return positions / kKvBlock; }

// Attention makes later tokens dearer; linear layers cost the same everywhere. About as much of
// either at this length.
constexpr double kEvenLength = 8192;

}  // namespace

PrefixCache::PrefixCache(const PrefixCacheOptions& options, const StateLayout& layout,
                         PagePool& pool)
    : pool_(pool),
      num_layers_(layout.layers.size()),
      by_checkpoints_(!layout.keeps_everything()),
      max_bytes_(options.max_bytes > 0 ? options.max_bytes : pool.budget_bytes()),
      max_checkpoint_bytes_(options.max_checkpoint_bytes > 0 ? options.max_checkpoint_bytes
                                                             : pool.budget_bytes() / 2),
      interval_(std::max<std::int64_t>(1, (options.checkpoint_interval + kKvBlock - 1) / kKvBlock) *
                kKvBlock) {
  for (std::size_t i = 0; i < layout.layers.size(); ++i) {
    if (!std::holds_alternative<PagedKv>(layout.layers[i])) continue;
    paged_layers_.push_back(i);
    block_bytes_ += page_bytes(layout.layers[i]);
  }
}

PrefixCache::~PrefixCache() = default;

bool PrefixCache::ByWorth::operator()(const Node* a, const Node* b) const {
  return std::tie(a->priority, a->tick) < std::tie(b->priority, b->tick);
}

PrefixCache::Node* PrefixCache::lookup(const PrefixKey& key) const {
  const auto it = nodes_.find(key);
  return it == nodes_.end() ? nullptr : it->second.get();
}

PrefixCache::Match PrefixCache::find(const PrefixChain& chain, std::span<const TokenId> tokens,
                                     std::int64_t limit) const {
  Match match;
  const int most =
      static_cast<int>(std::min<std::int64_t>(chain.num_blocks(), whole_blocks(limit)));
  for (int block = 1; block <= most; ++block) {
    Node* node = lookup(chain.key(block));
    if (node == nullptr) break;
    match.known = node->end;
    if (!by_checkpoints_ || node->checkpoint) match.node = node;
    for (Node* child : node->children) {
      if (!child->is_tail() || child->end > limit) continue;
      const auto tail = tokens.subspan(static_cast<std::size_t>(node->end),
                                       static_cast<std::size_t>(child->end - node->end));
      const bool longer = match.node == nullptr || child->end > match.node->end;
      if (longer && chain.tail_key(block, tail) == child->key) match.node = child;
    }
  }
  if (match.node == nullptr) return match;
  match.position = match.node->end;
  const auto count = [&](const PageRef& page) {
    if (!page.idle()) match.pinned_bytes += page.bytes();
  };
  for (const Node* node = match.node; node != nullptr; node = node->parent) {
    for (const PageRef& page : node->pages) count(page);
  }
  if (match.node->checkpoint && !match.node->is_tail()) {
    for (const StateSnapshot::Layer& layer : match.node->checkpoint->layers) {
      for (const PageRef& page : layer.pages) count(page);
    }
  }
  return match;
}

StateSnapshot PrefixCache::take(const Match& match) {
  StateSnapshot out;
  if (match.node == nullptr) {
    ++stats_.misses;
    return out;
  }
  ++stats_.hits;
  stats_.hit_tokens += static_cast<std::uint64_t>(match.position);
  out.position = match.position;
  out.layers.resize(num_layers_);
  for (const Node* node = match.node; node != nullptr; node = node->parent) {
    for (std::size_t i = 0; i < node->pages.size(); ++i) {
      out.layers[paged_layers_[i]].pages.push_back(node->pages[i].share());
    }
  }
  for (const std::size_t layer : paged_layers_) {
    std::reverse(out.layers[layer].pages.begin(), out.layers[layer].pages.end());
  }
  if (match.node->checkpoint) {
    const StateSnapshot& saved = *match.node->checkpoint;
    for (std::size_t i = 0; i < num_layers_; ++i) {
      // The whole blocks of full attention come from the tree.
      if (out.layers[i].pages.empty()) out.layers[i].first_block = saved.layers[i].first_block;
      for (const PageRef& page : saved.layers[i].pages) out.layers[i].pages.push_back(page.share());
    }
  }
  if (by_checkpoints_) {
    touch(match.node);
  } else {
    for (Node* node = match.node; node != nullptr; node = node->parent) touch(node);
  }
  return out;
}

PrefixCache::Owner& PrefixCache::owner_of(const PrefixChain& chain) {
  std::unique_ptr<Owner>& owner = owners_[chain.key(0)];
  if (!owner) {
    owner = std::make_unique<Owner>();
    owner->key = chain.key(0);
  }
  return *owner;
}

bool PrefixCache::within_share(const Owner& owner) const {
  return owner.bytes * 2 * owners_.size() <= stats_.bytes;
}

void PrefixCache::count_bytes(Owner& owner, std::int64_t bytes) {
  owner.bytes += static_cast<std::uint64_t>(bytes);
  stats_.bytes += static_cast<std::uint64_t>(bytes);
}

PrefixCache::Node* PrefixCache::add_node(Owner& owner, const PrefixKey& key, Node* parent,
                                         std::int64_t end) {
  auto owned = std::make_unique<Node>();
  Node* node = owned.get();
  node->key = key;
  node->owner = &owner;
  ++owner.num_nodes;
  node->parent = parent;
  node->end = end;
  nodes_.emplace(key, std::move(owned));
  if (parent != nullptr) {
    if (!by_checkpoints_) dequeue(parent);
    parent->children.push_back(node);
  }
  return node;
}

// The node of the first `num_blocks` blocks; those that are new take their pages from `state`.
PrefixCache::Node* PrefixCache::grow(const PrefixChain& chain, const SequenceState& state,
                                     int num_blocks) {
  Owner& owner = owner_of(chain);
  Node* parent = nullptr;
  for (int block = 1; block <= num_blocks; ++block) {
    Node* node = lookup(chain.key(block));
    if (node == nullptr) {
      node = add_node(owner, chain.key(block), parent, std::int64_t{block} * kKvBlock);
      for (const std::size_t layer : paged_layers_) {
        const PageRef* page = state.page(layer, block - 1);
        FLOTILLA_CHECK(page != nullptr, "a sequence without one of its blocks");
        node->pages.push_back(page->share_with_cache());
      }
      count_bytes(owner, static_cast<std::int64_t>(block_bytes_));
      ++stats_.num_blocks;
    }
    parent = node;
  }
  return parent;
}

void PrefixCache::insert_blocks(const PrefixChain& chain, const SequenceState& state,
                                std::int64_t positions) {
  FLOTILLA_CHECK(!by_checkpoints_, "blocks without a checkpoint");
  const std::int64_t most = std::min(positions, state.num_positions());
  const int blocks =
      static_cast<int>(std::min<std::int64_t>(chain.num_blocks(), whole_blocks(most)));
  if (blocks == 0 || block_bytes_ == 0) return;
  for (Node* node = grow(chain, state, blocks); node != nullptr; node = node->parent) touch(node);
  keep_to_budget();
}

void PrefixCache::insert_checkpoint(const PrefixChain& chain, std::span<const TokenId> tokens,
                                    const SequenceState& state, StateSnapshot checkpoint) {
  FLOTILLA_CHECK(by_checkpoints_, "a checkpoint for a layout that needs none");
  const std::size_t bytes = checkpoint.bytes();
  const int blocks = static_cast<int>(whole_blocks(checkpoint.position));
  const std::size_t whole = bytes + static_cast<std::size_t>(blocks) * block_bytes_;
  if (blocks == 0 || bytes > max_checkpoint_bytes_ || whole > max_bytes_) return;
  FLOTILLA_CHECK(blocks <= chain.num_blocks(), "a checkpoint beyond its chain");
  Node* node = grow(chain, state, blocks);
  if (checkpoint.position > node->end) {
    const auto tail = tokens.subspan(static_cast<std::size_t>(node->end),
                                     static_cast<std::size_t>(checkpoint.position - node->end));
    const PrefixKey key = chain.tail_key(blocks, tail);
    Node* child = lookup(key);
    node = child != nullptr ? child : add_node(*node->owner, key, node, checkpoint.position);
  }
  if (!node->checkpoint) {
    node->checkpoint = std::move(checkpoint);
    node->checkpoint_bytes = bytes;
    count_bytes(*node->owner, static_cast<std::int64_t>(bytes));
    stats_.checkpoint_bytes += bytes;
    ++stats_.num_checkpoints;
  }
  touch(node);
  keep_to_budget();
}

// Tokens saved per byte that eviction frees.
double PrefixCache::worth(const Node& node) const {
  const double dear = 1 + static_cast<double>(node.end) / kEvenLength;
  if (!by_checkpoints_) return dear * kKvBlock / static_cast<double>(block_bytes_);
  const Node* before = node.parent;
  while (before != nullptr && !before->checkpoint) before = before->parent;
  const std::int64_t start = before == nullptr ? 0 : before->end;
  std::size_t bytes = node.checkpoint_bytes + 1;
  if (node.children.empty()) {
    bytes += static_cast<std::size_t>(whole_blocks(node.end - start)) * block_bytes_;
  }
  return dear * static_cast<double>(node.end - start) / static_cast<double>(bytes);
}

void PrefixCache::touch(Node* node) {
  dequeue(node);
  node->priority = clock_ + worth(*node);
  node->tick = ++tick_;
  const bool evictable = by_checkpoints_ ? node->checkpoint.has_value() : node->children.empty();
  if (evictable) enqueue(node);
}

void PrefixCache::enqueue(Node* node) {
  if (!std::exchange(node->queued, true)) node->owner->queue.insert(node);
}

void PrefixCache::dequeue(Node* node) {
  if (std::exchange(node->queued, false)) node->owner->queue.erase(node);
}

void PrefixCache::remove_leaf(Node* node) {
  FLOTILLA_CHECK(node->children.empty() && !node->checkpoint, "a node that is still of use");
  dequeue(node);
  Owner* owner = node->owner;
  if (!node->is_tail()) {
    count_bytes(*owner, -static_cast<std::int64_t>(block_bytes_));
    --stats_.num_blocks;
  }
  Node* parent = node->parent;
  nodes_.erase(PrefixKey(node->key));
  if (--owner->num_nodes == 0) owners_.erase(PrefixKey(owner->key));
  if (parent == nullptr) return;
  std::erase(parent->children, node);
  if (!by_checkpoints_ && parent->children.empty()) enqueue(parent);
}

void PrefixCache::drop_checkpoint(Node* node) {
  if (!node->checkpoint) return;
  count_bytes(*node->owner, -static_cast<std::int64_t>(node->checkpoint_bytes));
  stats_.checkpoint_bytes -= node->checkpoint_bytes;
  --stats_.num_checkpoints;
  node->checkpoint.reset();
  node->checkpoint_bytes = 0;
  if (by_checkpoints_) dequeue(node);
}

void PrefixCache::prune(Node* node) {
  while (node != nullptr && node->children.empty() && !node->checkpoint) {
    Node* parent = node->parent;
    remove_leaf(node);
    if (!by_checkpoints_) return;
    node = parent;
  }
}

void PrefixCache::evict(Node* node) {
  clock_ = std::max(clock_, node->priority);
  ++stats_.evictions;
  drop_checkpoint(node);
  prune(node);
}

bool PrefixCache::frees_memory(const Node& node) const {
  const auto idle = [](const PageRef& page) { return page.idle(); };
  if (node.checkpoint) {
    for (const StateSnapshot::Layer& layer : node.checkpoint->layers) {
      if (std::any_of(layer.pages.begin(), layer.pages.end(), idle)) return true;
    }
  }
  // Blocks that only this checkpoint keeps go with it.
  for (const Node* block = &node; block != nullptr; block = block->parent) {
    if (block != &node && (block->checkpoint || block->children.size() > 1)) return false;
    if (block == &node && !block->children.empty()) return false;
    if (std::any_of(block->pages.begin(), block->pages.end(), idle)) return true;
    if (!by_checkpoints_) return false;
  }
  return false;
}

template <class Filter>
PrefixCache::Node* PrefixCache::victim(Filter&& filter) const {
  Node* best = nullptr;
  bool best_within = false;
  for (const auto& [key, owner] : owners_) {
    const bool within = within_share(*owner);
    if (best != nullptr && within && !best_within) continue;
    const auto found = std::find_if(owner->queue.begin(), owner->queue.end(), filter);
    if (found == owner->queue.end()) continue;
    if (best == nullptr || (best_within && !within) ||
        (best_within == within && ByWorth()(*found, best))) {
      best = *found;
      best_within = within;
    }
  }
  return best;
}

bool PrefixCache::evict_one() {
  if (pool_.idle_bytes() == 0) return false;
  Node* node = victim([this](const Node* candidate) { return frees_memory(*candidate); });
  if (node == nullptr) return false;
  evict(node);
  return true;
}

void PrefixCache::keep_to_budget() {
  while (stats_.bytes > max_bytes_ || stats_.checkpoint_bytes > max_checkpoint_bytes_) {
    Node* node = victim([](const Node*) { return true; });
    if (node == nullptr) return;
    evict(node);
  }
}

void PrefixCache::forget(const PrefixChain& chain) {
  if (chain.num_blocks() < 1) return;
  Node* first = lookup(chain.key(1));
  if (first == nullptr) return;
  std::vector<Node*> order = {first};  // parents before children
  for (std::size_t i = 0; i < order.size(); ++i) {
    order.insert(order.end(), order[i]->children.begin(), order[i]->children.end());
  }
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    drop_checkpoint(*it);
    remove_leaf(*it);
  }
}

void PrefixCache::clear() {
  nodes_.clear();
  owners_.clear();
  stats_.bytes = stats_.checkpoint_bytes = stats_.num_blocks = stats_.num_checkpoints = 0;
}

void PrefixCache::check_integrity() const {
  std::uint64_t blocks = 0, checkpoints = 0, checkpoint_bytes = 0, queued = 0;
  std::unordered_map<const Owner*, std::uint64_t> bytes_of;
  for (const auto& [key, node] : nodes_) {
    bytes_of[node->owner] += (node->is_tail() ? 0 : block_bytes_) + node->checkpoint_bytes;
    if (!node->is_tail()) ++blocks;
    FLOTILLA_CHECK(node->pages.size() == (node->is_tail() ? 0 : paged_layers_.size()),
                   "a cached block without its pages");
    if (node->checkpoint) {
      ++checkpoints;
      checkpoint_bytes += node->checkpoint_bytes;
      FLOTILLA_CHECK(node->checkpoint->bytes() == node->checkpoint_bytes, "a checkpoint changed");
    }
    if (node->queued) ++queued;
    const bool leaf = node->children.empty();
    FLOTILLA_CHECK(node->queued == (by_checkpoints_ ? node->checkpoint.has_value() : leaf),
                   "a cached block is lost to eviction");
    FLOTILLA_CHECK(!by_checkpoints_ || !leaf || node->checkpoint, "a cached block of no use");
    if (node->parent != nullptr) {
      const auto& siblings = node->parent->children;
      FLOTILLA_CHECK(std::count(siblings.begin(), siblings.end(), node.get()) == 1, "a lost child");
    }
  }
  std::uint64_t in_queues = 0;
  for (const auto& [key, owner] : owners_) {
    in_queues += owner->queue.size();
    FLOTILLA_CHECK(owner->num_nodes > 0 && bytes_of[owner.get()] == owner->bytes,
                   "a tenant's bytes do not add up");
  }
  FLOTILLA_CHECK(bytes_of.size() == owners_.size(), "a tenant that nobody knows");
  FLOTILLA_CHECK(queued == in_queues, "the cache's queue does not add up");
  FLOTILLA_CHECK(blocks == stats_.num_blocks && checkpoints == stats_.num_checkpoints &&
                     checkpoint_bytes == stats_.checkpoint_bytes &&
                     stats_.bytes == blocks * block_bytes_ + checkpoint_bytes,
                 "the cache's bytes do not add up");
}

}  // namespace flotilla::state
