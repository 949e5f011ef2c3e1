#include "flotilla/engine/scheduler.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "flotilla/base/check.h"

namespace flotilla::engine {

Scheduler::Scheduler(const SchedulerOptions& options, const state::StateLayout& layout,
                     state::PagePool& pool)
    : options_(options), layout_(layout), pool_(pool) {
  FLOTILLA_CHECK(options_.max_batch_tokens > 0 && options_.prefill_chunk > 0, "empty steps");
  FLOTILLA_CHECK(options_.max_sequences > 0, "no sequences");
}

Sequence& Scheduler::add(RequestId id, std::string tenant, std::vector<TokenId> tokens) {
  FLOTILLA_CHECK(!tokens.empty(), "a sequence without tokens");
  if (!sequences_.empty() && sequences_.back()->tenant != tenant) several_tenants_ = true;
  sequences_.push_back(
      std::make_unique<Sequence>(Sequence{.id = id,
                                          .arrival = next_arrival_++,
                                          .tenant = std::move(tenant),
                                          .tokens = std::move(tokens),
                                          .state = state::SequenceState(layout_, pool_)}));
  return *sequences_.back();
}

Sequence* Scheduler::find(RequestId id) {
  const auto it = std::find_if(sequences_.begin(), sequences_.end(),
                               [id](const auto& sequence) { return sequence->id == id; });
  return it == sequences_.end() ? nullptr : it->get();
}

void Scheduler::remove(RequestId id) {
  std::erase_if(sequences_, [id](const auto& sequence) { return sequence->id == id; });
}

void Scheduler::set_reader_full(RequestId id, bool full) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return;
  sequence->reader_full = full;
  if (sequence->holds_pages()) {
    sequence->status = full ? SequenceStatus::kPaused : SequenceStatus::kRunning;
  }
}

std::int64_t Scheduler::num_running() const {
  return std::count_if(sequences_.begin(), sequences_.end(),
                       [](const auto& sequence) { return sequence->holds_pages(); });
}

std::int64_t Scheduler::num_waiting() const {
  return static_cast<std::int64_t>(sequences_.size()) - num_running();
}

bool Scheduler::has_runnable() const {
  return std::any_of(sequences_.begin(), sequences_.end(),
                     [](const auto& sequence) { return !sequence->reader_full; });
}

std::vector<ScheduledRow> Scheduler::schedule() {
  ++step_;
  const auto every = static_cast<std::uint64_t>(options_.force_preemption_every);
  if (every > 0 && step_ % every == 0) force_preemption();
  admit();
  std::vector<ScheduledRow> rows;
  add_decode_rows(rows);
  add_prefill_rows(rows);
  return rows;
}

void Scheduler::complete(const std::vector<ScheduledRow>& rows) {
  for (const ScheduledRow& row : rows) row.sequence->state.append(row.count);
}

// Oldest first: whoever must give pages up is then not in the step yet. When there are more
// sequences than fit, those that waited longest go first. All are tried until the step is full: one
// that finds no page must not keep the place of one that needs none.
void Scheduler::add_decode_rows(std::vector<ScheduledRow>& rows) {
  std::vector<Sequence*> ready;
  bool prefilling = false;
  for (const auto& sequence : sequences_) {
    if (sequence->status != SequenceStatus::kRunning) continue;
    if (sequence->num_pending() == 1) {
      ready.push_back(sequence.get());
    } else {
      prefilling = true;
    }
  }
  std::int64_t budget = options_.max_batch_tokens;
  if (prefilling) budget -= std::min<std::int64_t>(budget / 4, options_.prefill_chunk);
  if (static_cast<std::int64_t>(ready.size()) > budget) {
    std::stable_sort(ready.begin(), ready.end(), [](const Sequence* a, const Sequence* b) {
      return a->last_turn < b->last_turn;
    });
  }
  for (Sequence* sequence : ready) {
    if (static_cast<std::int64_t>(rows.size()) >= budget) return;
    if (sequence->status == SequenceStatus::kRunning) try_row(*sequence, 1, rows);
  }
}

// Half of what is left goes to the prompt that came first, the rest to the shortest remainders: a
// short request does not wait for long ones, and a long one is never put off for ever.
void Scheduler::add_prefill_rows(std::vector<ScheduledRow>& rows) {
  std::int64_t budget = options_.max_batch_tokens - static_cast<std::int64_t>(rows.size());
  std::vector<std::pair<Sequence*, std::int64_t>> shares;
  for (const auto& sequence : sequences_) {
    if (sequence->status == SequenceStatus::kRunning && sequence->num_pending() > 1) {
      shares.emplace_back(sequence.get(), 0);
    }
  }
  if (shares.empty()) return;
  const auto take = [&](std::pair<Sequence*, std::int64_t>& share, std::int64_t limit) {
    const std::int64_t wanted =
        std::min(share.first->num_pending(), options_.prefill_chunk) - share.second;
    const std::int64_t count = std::min({wanted, limit, budget});
    share.second += count;
    budget -= count;
  };
  take(shares.front(), (budget + 1) / 2);
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) {
    return a.first->num_pending() < b.first->num_pending();
  });
  for (auto& share : shares) take(share, budget);
  std::sort(shares.begin(), shares.end(),
            [](const auto& a, const auto& b) { return a.first->arrival < b.first->arrival; });
  for (const auto& [sequence, count] : shares) {
    if (count > 0 && sequence->status == SequenceStatus::kRunning) {
      try_row(*sequence, count, rows);
    }
  }
}

// Adds a row if there is room for it, or room can be made at the cost of newer sequences. Otherwise
// the sequence keeps what it has and waits: the oldest can always take from the others.
bool Scheduler::try_row(Sequence& sequence, std::int64_t count, std::vector<ScheduledRow>& rows) {
  const std::int64_t begin = sequence.state.num_positions();
  while (!sequence.state.reserve(begin + count).ok()) {
    Sequence* victim = victim_for(sequence, rows);
    if (victim == nullptr) return false;
    preempt(*victim);
  }
  sequence.last_turn = ++turn_;
  rows.push_back({.sequence = &sequence,
                  .begin = begin,
                  .count = count,
                  .wants_logits = sequence.num_pending() == count});
  return true;
}

Sequence* Scheduler::newest_paused() {
  const auto it = std::find_if(sequences_.rbegin(), sequences_.rend(), [](const auto& sequence) {
    return sequence->status == SequenceStatus::kPaused;
  });
  return it == sequences_.rend() ? nullptr : it->get();
}

// The newest paused sequence; else the newest of all that came after `sequence` and are not in the
// step.
Sequence* Scheduler::victim_for(const Sequence& sequence, const std::vector<ScheduledRow>& rows) {
  if (Sequence* paused = newest_paused()) return paused;
  for (auto it = sequences_.rbegin(); it != sequences_.rend(); ++it) {
    Sequence* candidate = it->get();
    if (candidate->arrival <= sequence.arrival) return nullptr;
    if (candidate->status != SequenceStatus::kRunning || candidate->state.num_pages() == 0)
      continue;
    const bool in_step = std::any_of(rows.begin(), rows.end(), [candidate](const ScheduledRow& r) {
      return r.sequence == candidate;
    });
    if (!in_step) return candidate;
  }
  return nullptr;
}

void Scheduler::preempt(Sequence& sequence) {
  sequence.state.release();
  sequence.status = SequenceStatus::kPreempted;
  ++num_preemptions_;
}

void Scheduler::force_preemption() {
  std::vector<Sequence*> running;
  for (const auto& sequence : sequences_) {
    if (sequence->holds_pages()) running.push_back(sequence.get());
  }
  if (!running.empty()) preempt(*running[step_ % running.size()]);
}

// A paused sequence keeps neither a place nor pages from one that could run.
void Scheduler::admit() {
  while (true) {
    Sequence* next = nullptr;
    if (num_running() < options_.max_sequences) next = next_to_admit();
    if (next == nullptr) {
      const bool wanted = std::any_of(sequences_.begin(), sequences_.end(), [](const auto& s) {
        return !s->holds_pages() && !s->reader_full;
      });
      Sequence* paused = wanted ? newest_paused() : nullptr;
      if (paused == nullptr) return;
      preempt(*paused);
      continue;
    }
    next->status = SequenceStatus::kRunning;
    next->times_bypassed = 0;
  }
}

// The preempted come first, then whoever's tenant runs least, then the order of arrival. One that
// needs more memory than is free lets others pass, but not for ever. Where there are several
// tenants, none takes the last eighth of the places for its second sequence.
Sequence* Scheduler::next_to_admit() {
  std::map<std::string_view, std::int64_t> running_of;
  std::vector<Sequence*> waiting;
  for (const auto& sequence : sequences_) {
    if (sequence->holds_pages()) {
      ++running_of[sequence->tenant];
    } else if (!sequence->reader_full) {
      waiting.push_back(sequence.get());
    }
  }
  if (waiting.empty()) return nullptr;
  const auto order = [&](const Sequence* s) {
    return s->status == SequenceStatus::kPreempted ? -1 : running_of[s->tenant];
  };
  std::stable_sort(waiting.begin(), waiting.end(),
                   [&](const Sequence* a, const Sequence* b) { return order(a) < order(b); });
  const std::int64_t reserved = several_tenants_ ? options_.max_sequences / 8 : 0;
  const std::int64_t free_places = options_.max_sequences - num_running();
  const std::size_t promised = promised_bytes();
  std::vector<Sequence*> passed;
  for (Sequence* sequence : waiting) {
    if (free_places <= reserved && order(sequence) > 0) continue;
    if (fits(*sequence, promised)) {
      for (Sequence* other : passed) ++other->times_bypassed;
      return sequence;
    }
    if (sequence->times_bypassed >= options_.max_bypass) return nullptr;
    passed.push_back(sequence);
  }
  return nullptr;
}

// Room for all its tokens and the next one, beside what the running ones still need for theirs.
bool Scheduler::fits(const Sequence& sequence, std::size_t promised) const {
  const auto length = static_cast<std::int64_t>(sequence.tokens.size()) + 1;
  const std::size_t needed = layout_.peak_bytes(length, options_.prefill_chunk);
  const std::size_t free = pool_.free_bytes();
  return promised <= free && needed <= free - promised;
}

std::size_t Scheduler::promised_bytes() const {
  std::size_t total = 0;
  for (const auto& sequence : sequences_) {
    if (!sequence->holds_pages()) continue;
    const auto length = static_cast<std::int64_t>(sequence->tokens.size()) + 1;
    const std::size_t needed = layout_.peak_bytes(length, options_.prefill_chunk);
    total += needed - std::min(needed, sequence->state.bytes());
  }
  return total;
}

Sequence* Scheduler::stuck() {
  for (const auto& sequence : sequences_) {
    if (!sequence->reader_full) return sequence.get();
  }
  return nullptr;
}

void Scheduler::check_integrity() const {
  std::size_t pages = 0;
  for (const auto& sequence : sequences_) {
    FLOTILLA_CHECK(sequence->holds_pages() || sequence->state.num_pages() == 0,
                   "a sequence that does not run holds pages");
    FLOTILLA_CHECK(sequence->num_pending() >= 0, "more positions than tokens");
    pages += sequence->state.num_pages();
  }
  FLOTILLA_CHECK(num_running() <= options_.max_sequences, "too many sequences run");
  pool_.check_integrity(pages);
}

}  // namespace flotilla::engine
