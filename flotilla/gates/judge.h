// The gates, in their one order: whether a node may have a job, and if not, why, with the numbers.
// Pure: the router asks with what nodes have reported, the planner with the same, a node with what
// it knows about itself. So the three can differ in how fresh their facts are and in nothing else.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "flotilla/gates/memory.h"
#include "flotilla/gates/reason.h"

namespace flotilla::gates {

using std::chrono::milliseconds;

// A machine.
struct NodeFacts {
  std::uint64_t memory_bytes = 0;                   // physical; 0: unknown
  std::uint64_t usable_bytes = 0;                   // by all models together; 0: unknown
  std::optional<std::uint64_t> free_for_load = {};  // as it says itself; absent: it has not
  bool silent = false;
  bool draining = false;
  milliseconds cooldown{0};  // left
  // Nothing runs on it that an unload would disturb: its resident models can make room.
  std::uint64_t idle_resident_bytes = 0;
};

// A model on that machine.
struct SlotFacts {
  bool listed = true;
  bool other_version = false;
  bool resident = false;
  bool loading = false;
  bool healthy = true;
  bool stuck = false;
  milliseconds refused_for{0};  // it said it was busy: left
  std::uint32_t num_jobs = 0;
  std::uint32_t max_jobs = 1;
  std::int64_t context_length = 0;  // 0: unknown
  std::uint64_t state_used = 0;     // bytes, by running jobs
  std::uint64_t state_total = 0;    // 0: unknown
  milliseconds slot_free_in{0};     // expected, when all are taken; 0: unknown
  milliseconds loaded_in{0};        // expected, when it loads; 0: unknown
};

struct ModelFacts {
  ModelSize size;
  StateCost state;
};

// A job.
struct Ask {
  bool tried = false;
  bool other_weights = false;
  bool any_version = false;  // it began when another version was active, and goes on with that
  std::int64_t prompt_tokens = 0;  // 0: unknown
  bool exact = true;               // else prompt_tokens is guessed, and nothing is refused for good
  std::int64_t max_tokens = 0;     // 0: unknown
};

struct Verdict {
  Reason reason = Reason::kNone;
  // The first gate in shadow that would have refused, though `reason` is another one or none.
  Reason shadow = Reason::kNone;
  // What was compared, in the unit of the reason (bytes, jobs, tokens); of `shadow` when `reason`
  // is kNone.
  std::uint64_t needed = 0;
  std::uint64_t available = 0;
  std::optional<milliseconds> changes_in = {};  // when it may change; absent: unknown, or never

  bool admitted() const { return reason == Reason::kNone; }
};

Verdict judge(const NodeFacts& node, const SlotFacts& slot, const ModelFacts& model, const Ask& ask,
              const Modes& modes);

// The parts of it that compare memory. `needed` and `available` are filled in; kNone: it fits, or
// too little is known.
Verdict hardware_gate(const NodeFacts& node, const SlotFacts& slot, const ModelFacts& model);
Verdict load_gate(const NodeFacts& node, const SlotFacts& slot, const ModelFacts& model);
Verdict state_gate(const SlotFacts& slot, const StateCost& cost, const Ask& ask);

// What a client is told when nothing was found: whether waiting helps, and how long at least.
struct Outlook {
  bool permanent = false;    // every node that has the model is out for good
  milliseconds retry_in{0};  // of the node that may change first; 0: unknown
};
class OutlookOf {
 public:
  void add(const Verdict& verdict);
  Outlook get() const;
  const ReasonCounts& counts() const { return counts_; }

 private:
  ReasonCounts counts_{};
  std::optional<milliseconds> first_;
};

}  // namespace flotilla::gates
