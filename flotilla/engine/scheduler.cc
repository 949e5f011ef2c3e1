#include "flotilla/engine/scheduler.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "flotilla/base/check.h"

namespace flotilla::engine {

Scheduler::Scheduler(const SchedulerOptions& options, const state::StateLayout& layout,
                     state::PagePool& pool, state::PrefixCache* cache, std::string model_digest)
    : options_(options),
      layout_(layout),
      pool_(pool),
      cache_(cache),
      model_digest_(std::move(model_digest)) {
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
  Sequence& added = *sequences_.back();
  if (cache_ != nullptr) added.chain = state::PrefixChain(model_digest_, added.tenant);
  return added;
}

Sequence* Scheduler::find(RequestId id) {
  const auto it = std::find_if(sequences_.begin(), sequences_.end(),
                               [id](const auto& sequence) { return sequence->id == id; });
  return it == sequences_.end() ? nullptr : it->get();
}

void Scheduler::remove(RequestId id, Ending ending) {
  if (Sequence* sequence = cache_ != nullptr ? find(id) : nullptr) {
    if (ending == Ending::kKeep) cache_verified(*sequence);
    if (ending == Ending::kFault) cache_->forget(sequence->chain);
  }
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
                     [](const auto& sequence) { return sequence->can_run(); });
}

std::vector<ScheduledRow> Scheduler::schedule() {
  ++step_;
  const auto every = static_cast<std::uint64_t>(options_.force_preemption_every);
  if (every > 0 && step_ % every == 0) force_preemption();
  force_eviction();
  admit();
  std::vector<ScheduledRow> rows;
  add_decode_rows(rows);
  add_prefill_rows(rows);
  return rows;
}

void Scheduler::complete(const std::vector<ScheduledRow>& rows) {
  for (const ScheduledRow& row : rows) {
    state::SequenceState& state = row.sequence->state;
    state.advance(row.count);
    if (cache_ != nullptr) take_checkpoints(*row.sequence, row.begin);
    state.trim();
  }
}

// Oldest first: whoever must give pages up is then not in the step yet. When there are more
// sequences than fit, those that waited longest go first. All are tried until the step is full: one
// that finds no page must not keep the place of one that needs none.
void Scheduler::add_decode_rows(std::vector<ScheduledRow>& rows) {
  std::vector<Sequence*> ready;
  bool prefilling = false;
  for (const auto& sequence : sequences_) {
    if (sequence->status != SequenceStatus::kRunning || sequence->awaits_mask) continue;
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
  if (cache_ != nullptr && layout_.has_fixed()) {
    count = std::min(count, next_mark(sequence, begin) - begin);  // a state is saved in passing
  }
  const bool decodes = sequence.num_pending() == 1;
  const bool has_room =
      decodes && options_.room_ahead > 0 &&
      sequence.state.bytes_to_reserve(begin + count + options_.room_ahead) <= pool_.free_bytes() &&
      sequence.state.reserve(begin + count + options_.room_ahead).ok();
  while (!has_room && !sequence.state.reserve(begin + count).ok()) {
    if (free_cached(sequence.state.bytes_to_reserve(begin + count))) continue;
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
  sequence.checkpoints.clear();
  sequence.verified = 0;
  sequence.awaits_mask = false;
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
      if (paused != nullptr) {
        preempt(*paused);
      } else if (!wanted || !yield_to_newcomer()) {
        return;
      }
      continue;
    }
    next->status = SequenceStatus::kRunning;
    // Whoever had to insist keeps the right to its place.
    if (next->times_bypassed < options_.max_bypass) next->times_bypassed = 0;
    next->yielded = false;
    if (cache_ != nullptr) restore_prefix(*next);
  }
}

// A tenant that runs nothing takes a place, or the memory, of the newest sequence of the tenant
// that runs most, if that is more than one. So nobody waits for the end of all that somebody else
// asked.
bool Scheduler::yield_to_newcomer() {
  const bool somebody_is_next =
      std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& s) {
        return !s->holds_pages() && !s->reader_full && s->times_bypassed >= options_.max_bypass;
      });
  if (!several_tenants_ || somebody_is_next) return false;
  std::map<std::string_view, std::int64_t> running_of;
  for (const auto& sequence : sequences_) {
    if (sequence->holds_pages()) ++running_of[sequence->tenant];
  }
  const auto newcomer = std::find_if(sequences_.begin(), sequences_.end(), [&](const auto& s) {
    return !s->holds_pages() && !s->reader_full && !running_of.contains(s->tenant);
  });
  const auto most =
      std::max_element(running_of.begin(), running_of.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (newcomer == sequences_.end() || most == running_of.end() || most->second < 2) return false;
  const auto victim = std::find_if(sequences_.rbegin(), sequences_.rend(), [&](const auto& s) {
    return s->holds_pages() && s->tenant == most->first && s->times_bypassed < options_.max_bypass;
  });
  if (victim == sequences_.rend()) return false;
  const auto needs = [&](const Sequence& sequence) {
    const auto length = static_cast<std::int64_t>(sequence.tokens.size()) + 1;
    return layout_.peak_bytes(length, options_.prefill_chunk);
  };
  const std::size_t available = pool_.free_bytes() + pool_.idle_bytes() + needs(**victim);
  if (needs(**newcomer) + promised_bytes() > available) return false;
  preempt(**victim);
  (*victim)->yielded = true;
  return true;
}

// The preempted come first, then whoever's tenant runs least, then the order of arrival. One that
// needs more memory than is free, or whose tenant runs more, lets others pass, but not for ever:
// whoever was passed too often is next, and nobody passes it. Where there are several tenants, none
// takes the last eighth of the places for its second sequence.
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
  const auto overdue = [&](const Sequence* s) { return s->times_bypassed >= options_.max_bypass; };
  const auto order = [&](const Sequence* s) {
    const bool first = (s->status == SequenceStatus::kPreempted && !s->yielded) || overdue(s);
    return first ? -1 : running_of[s->tenant];
  };
  std::stable_sort(waiting.begin(), waiting.end(),
                   [&](const Sequence* a, const Sequence* b) { return order(a) < order(b); });
  const std::int64_t reserved = several_tenants_ ? options_.max_sequences / 8 : 0;
  const std::int64_t free_places = options_.max_sequences - num_running();
  const std::size_t promised = promised_bytes();
  for (Sequence* sequence : waiting) {
    if (free_places <= reserved && order(sequence) > 0) continue;
    if (fits(*sequence, promised)) {
      for (Sequence* other : waiting) {
        if (other->arrival < sequence->arrival) ++other->times_bypassed;
      }
      return sequence;
    }
    if (overdue(sequence)) return nullptr;
  }
  return nullptr;
}

// Room for all its tokens and the next one, beside what the running ones still need for theirs.
// What only the cache holds is as good as free.
bool Scheduler::fits(Sequence& sequence, std::size_t promised) const {
  const auto length = static_cast<std::int64_t>(sequence.tokens.size()) + 1;
  const std::size_t needed = layout_.peak_bytes(length, options_.prefill_chunk);
  const std::size_t free = pool_.free_bytes() + pool_.idle_bytes();
  if (promised > free) return false;
  if (needed <= free - promised) return true;
  return cache_ != nullptr &&
         needed - std::min(needed, pinned_prefix_bytes(sequence)) <= free - promised;
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
  Sequence* oldest = nullptr;
  for (const auto& sequence : sequences_) {
    if (sequence->awaits_mask) return nullptr;  // it will go on, and end
    if (oldest == nullptr && !sequence->reader_full) oldest = sequence.get();
  }
  return oldest;
}

void Scheduler::check_integrity() const {
  std::unordered_map<const float*, std::pair<std::uint32_t, std::uint32_t>> pages;  // seen, said
  const auto count = [&](const state::PageRef& page) {
    auto& [seen, said] = pages[page.data()];
    ++seen;
    said = page.num_refs();
  };
  for (const auto& sequence : sequences_) {
    FLOTILLA_CHECK(sequence->holds_pages() || sequence->state.num_pages() == 0,
                   "a sequence that does not run holds pages");
    FLOTILLA_CHECK(sequence->num_pending() >= (sequence->awaits_mask ? 0 : 1),
                   "more positions than tokens");
    FLOTILLA_CHECK(sequence->state.tail_is_exclusive(), "a page that will be written is shared");
    sequence->state.for_each_page(count);
    for (const state::StateSnapshot& checkpoint : sequence->checkpoints) {
      for (const auto& layer : checkpoint.layers) {
        for (const state::PageRef& page : layer.pages) count(page);
      }
    }
  }
  FLOTILLA_CHECK(num_running() <= options_.max_sequences, "too many sequences run");
  if (cache_ != nullptr) {
    cache_->check_integrity();
    cache_->for_each_page(count);
  }
  for (const auto& [page, refs] : pages) {
    FLOTILLA_CHECK(refs.first == refs.second, "a page has references that nobody holds");
  }
  pool_.check_integrity(pages.size());
}

}  // namespace flotilla::engine
