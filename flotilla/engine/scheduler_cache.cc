// The scheduler's dealings with the prefix cache.
#include <algorithm>
#include <utility>

#include "flotilla/engine/scheduler.h"

namespace flotilla::engine {

using tensor::kKvBlock;

// Takes up the longest known prefix of a sequence that was just admitted. At least one token is
// left to compute: logits are not cached.
void Scheduler::restore_prefix(Sequence& sequence) {
  const auto length = static_cast<std::int64_t>(sequence.tokens.size());
  sequence.chain.extend(sequence.tokens);
  const auto match = cache_->find(sequence.chain, sequence.tokens, length - 1);
  const state::StateSnapshot snapshot = cache_->take(match);
  if (snapshot.position > 0) {
    // Its own pages are held by the snapshot: only others are evicted for the copies.
    while (!sequence.state.restore(snapshot).ok() && cache_->evict_one()) {
    }
  }
  const std::int64_t start = sequence.state.num_positions();
  if (sequence.cached_tokens < 0) sequence.cached_tokens = start;
  sequence.marks.clear();
  if (!cache_->by_checkpoints()) return;
  // Where it leaves what others had in common with it, the next one will too.
  const std::int64_t end_of_prompt = (length - 1) / kKvBlock * kKvBlock;
  if (match.known > start && match.known < end_of_prompt) sequence.marks.push_back(match.known);
  if (end_of_prompt > start) sequence.marks.push_back(end_of_prompt);
}

std::size_t Scheduler::pinned_prefix_bytes(Sequence& sequence) const {
  sequence.chain.extend(sequence.tokens);
  const auto length = static_cast<std::int64_t>(sequence.tokens.size());
  return cache_->find(sequence.chain, sequence.tokens, length - 1).pinned_bytes;
}

// The first position after `position` where a checkpoint is wanted.
std::int64_t Scheduler::next_mark(const Sequence& sequence, std::int64_t position) const {
  const std::int64_t interval = cache_->checkpoint_interval();
  std::int64_t next = (position / interval + 1) * interval;
  for (const std::int64_t mark : sequence.marks) {
    if (mark > position) next = std::min(next, mark);
  }
  return next;
}

// After the positions from `from` on were computed, before the windows move on. One that finds no
// room is left out.
void Scheduler::take_checkpoints(Sequence& sequence, std::int64_t from) {
  if (!cache_->by_checkpoints()) return;
  const std::int64_t to = sequence.state.num_positions();
  for (std::int64_t mark = next_mark(sequence, from); mark <= to;
       mark = next_mark(sequence, mark)) {
    auto checkpoint = sequence.state.checkpoint(mark);
    if (checkpoint.ok()) sequence.checkpoints.push_back(std::move(checkpoint).value());
  }
  std::size_t bytes = 0;
  for (const auto& checkpoint : sequence.checkpoints) bytes += checkpoint.bytes();
  while (bytes > cache_->max_checkpoint_bytes() && !sequence.checkpoints.empty()) {
    bytes -= sequence.checkpoints.front().bytes();
    sequence.checkpoints.erase(sequence.checkpoints.begin());
  }
}

void Scheduler::verify(Sequence& sequence) {
  if (cache_ == nullptr) return;
  const bool first = sequence.verified == 0;
  sequence.verified = sequence.state.num_positions();
  if (sequence.checkpoints.empty() && (cache_->by_checkpoints() || !first)) return;
  sequence.chain.extend(sequence.tokens);
  for (state::StateSnapshot& checkpoint : std::exchange(sequence.checkpoints, {})) {
    cache_->insert_checkpoint(sequence.chain, sequence.tokens, sequence.state,
                              std::move(checkpoint));
  }
  // Others that begin alike need not wait for the end of this answer.
  if (!cache_->by_checkpoints() && first) {
    cache_->insert_blocks(sequence.chain, sequence.state, sequence.verified);
  }
}

// At the end of an answer: the next turn begins with it.
void Scheduler::cache_verified(Sequence& sequence) {
  if (!sequence.holds_pages() || sequence.verified == 0) return;
  sequence.chain.extend(sequence.tokens);
  if (!cache_->by_checkpoints()) {
    cache_->insert_blocks(sequence.chain, sequence.state, sequence.verified);
    return;
  }
  const std::int64_t position = layout_.has_fixed() ? sequence.state.num_positions()
                                                    : sequence.verified / kKvBlock * kKvBlock;
  if (position < kKvBlock || position > sequence.verified) return;
  auto checkpoint = sequence.state.checkpoint(position);
  if (!checkpoint.ok()) return;
  cache_->insert_checkpoint(sequence.chain, sequence.tokens, sequence.state,
                            std::move(checkpoint).value());
}

// Makes the cache give up memory until `wanted` bytes are free. False when it has none to give, or
// they were free already.
bool Scheduler::free_cached(std::size_t wanted) {
  if (cache_ == nullptr || pool_.free_bytes() >= wanted) return false;
  while (pool_.free_bytes() < wanted && cache_->evict_one()) {
  }
  if (pool_.free_bytes() >= wanted) return true;
  // Windows that were kept for checkpoints to come.
  for (const auto& sequence : sequences_) sequence->checkpoints.clear();
  return pool_.free_bytes() >= wanted;
}

void Scheduler::force_eviction() {
  const auto every = static_cast<std::uint64_t>(options_.force_eviction_every);
  if (cache_ == nullptr || every == 0 || step_ % every != 0) return;
  if (step_ / every % 4 == 0) return cache_->clear();
  for (std::uint64_t i = 0; i <= step_ % 8 && cache_->evict_one(); ++i) {
  }
}

}  // namespace flotilla::engine
