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

namespace flotilla::engine {

struct SchedulerOptions {
  std::int64_t max_batch_tokens = 256;  // in one step, decode rows included
  std::int64_t prefill_chunk = 128;     // the most of one prompt in one step
  std::int64_t max_sequences = 32;      // that hold pages at a time
  // So many may be admitted before one that came first but needs more memory.
  std::int64_t max_bypass = 64;
  std::int64_t force_preemption_every = 0;  // steps; for tests of the bit-contract. 0: never
};

// Owned by the engine thread. `layout` and `pool` must outlive it.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, const state::StateLayout& layout,
            state::PagePool& pool);

  // Queues a sequence; `tokens` must not be empty.
  Sequence& add(RequestId id, std::string tenant, std::vector<TokenId> tokens);
  // Forgets a sequence and gives its pages back.
  void remove(RequestId id);
  // A paused sequence keeps its pages (it is the first to lose them), but gets no rows.
  void set_reader_full(RequestId id, bool full);

  // The next step: decode rows, then prefill chunks, every row with room for its tokens. Admits and
  // preempts. Empty when nothing can run. The rows are valid until the next change.
  std::vector<ScheduledRow> schedule();
  // The rows of the last schedule() were computed.
  void complete(const std::vector<ScheduledRow>& rows);

  // After an empty schedule(): the oldest sequence that wants to run. Nobody is left who could give
  // it pages, so it never will; nullptr when every sequence waits for its reader.
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
  bool fits(const Sequence& sequence, std::size_t promised) const;
  std::size_t promised_bytes() const;
  void add_decode_rows(std::vector<ScheduledRow>& rows);
  void add_prefill_rows(std::vector<ScheduledRow>& rows);
  bool try_row(Sequence& sequence, std::int64_t count, std::vector<ScheduledRow>& rows);
  Sequence* victim_for(const Sequence& sequence, const std::vector<ScheduledRow>& rows);
  Sequence* newest_paused();
  void preempt(Sequence& sequence);
  void force_preemption();

  const SchedulerOptions options_;
  const state::StateLayout& layout_;
  state::PagePool& pool_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // in order of arrival
  std::uint64_t next_arrival_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t turn_ = 0;
  std::uint64_t num_preemptions_ = 0;
  bool several_tenants_ = false;  // seen so far
};

}  // namespace flotilla::engine
