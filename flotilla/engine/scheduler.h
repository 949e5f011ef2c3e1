// Decides what each step computes. Pure bookkeeping: no model, no clock, no threads. The invariants
// are listed in README.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/engine/sequence.h"
#include "flotilla/state/layer_state.h"
#include "flotilla/state/page_pool.h"
#include "flotilla/state/prefix_cache.h"

namespace flotilla::engine {

struct SchedulerOptions {
  std::int64_t max_batch_tokens = 256;  // in one step, decode rows included
  std::int64_t prefill_chunk = 128;     // the most of one prompt in one step
  std::int64_t max_sequences = 32;      // that hold pages at a time
  // Positions for which a decoding sequence has room beyond the step's, if there is any.
  std::int64_t room_ahead = 0;
  // So many may be admitted before one that came first, for whatever reason; then it is next.
  std::int64_t max_bypass = 64;
  // For tests of the bit-contract, in steps; 0: never.
  std::int64_t force_preemption_every = 0;
  std::int64_t force_eviction_every = 0;  // of some of the prefix cache; every fourth time of all
};

// What becomes of the state of a sequence that ends.
enum class Ending {
  kKeep,     // what is proved good may go to the prefix cache
  kDiscard,  // nothing goes there
  kFault,    // and nothing that it shared with it stays there
};

// Owned by the engine thread. `layout`, `pool` and `cache` must outlive it.
class Scheduler {
 public:
  // `cache`: null for none. `model_digest` separates the cache of one model from others'.
  Scheduler(const SchedulerOptions& options, const state::StateLayout& layout,
            state::PagePool& pool, state::PrefixCache* cache = nullptr,
            std::string model_digest = {});

  // Queues a sequence; `tokens` must not be empty.
  Sequence& add(RequestId id, std::string tenant, std::vector<TokenId> tokens);
  // Forgets a sequence and gives its pages back, or to the cache.
  void remove(RequestId id, Ending ending = Ending::kDiscard);
  // A paused sequence keeps its pages (it is the first to lose them), but gets no rows.
  void set_reader_full(RequestId id, bool full);

  // The next step: decode rows, then prefill chunks, every row with room for its tokens. Admits and
  // preempts. Empty when nothing can run. The rows are valid until the next change.
  std::vector<ScheduledRow> schedule();
  // The rows of the last schedule() were computed.
  void complete(const std::vector<ScheduledRow>& rows);
  // The logits at the end of what `sequence` has computed were good: its state may be cached.
  void verify(Sequence& sequence);

  // After an empty schedule(): the oldest sequence that wants to run. Nobody is left who could give
  // it pages, so it never will; nullptr when every sequence waits for its reader, or one for its
  // mask.
  Sequence* stuck();

  Sequence* find(RequestId id);
  std::int64_t num_running() const;  // with pages
  std::int64_t num_waiting() const;
  bool has_runnable() const;  // anything that schedule() could take up
  std::uint64_t num_preemptions() const { return num_preemptions_; }
  // Aborts when pages and sequences do not add up.
  void check_integrity() const;

 private:
  void admit();
  Sequence* next_to_admit();
  bool yield_to_newcomer();
  bool fits(Sequence& sequence, std::size_t promised) const;
  std::size_t promised_bytes() const;
  void add_decode_rows(std::vector<ScheduledRow>& rows);
  void add_prefill_rows(std::vector<ScheduledRow>& rows);
  bool try_row(Sequence& sequence, std::int64_t count, std::vector<ScheduledRow>& rows);
  Sequence* victim_for(const Sequence& sequence, const std::vector<ScheduledRow>& rows);
  Sequence* newest_paused();
  void preempt(Sequence& sequence);
  void force_preemption();
  void force_eviction();
  // With the prefix cache; implemented in scheduler_cache.cc.
  void restore_prefix(Sequence& sequence);
  std::size_t pinned_prefix_bytes(Sequence& sequence) const;
  std::int64_t next_mark(const Sequence& sequence, std::int64_t position) const;
  void take_checkpoints(Sequence& sequence, std::int64_t from);
  void cache_verified(Sequence& sequence);
  bool free_cached(std::size_t wanted);

  const SchedulerOptions options_;
  const state::StateLayout& layout_;
  state::PagePool& pool_;
  state::PrefixCache* const cache_;
  const std::string model_digest_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // in order of arrival
  std::uint64_t next_arrival_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t turn_ = 0;
  std::uint64_t num_preemptions_ = 0;
  bool several_tenants_ = false;  // seen so far
};

}  // namespace flotilla::engine
