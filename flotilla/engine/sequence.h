// One sequence as the scheduler sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/state/prefix_chain.h"
#include "flotilla/state/sequence_state.h"

namespace flotilla::engine {

enum class SequenceStatus {
  kWaiting,    // holds no pages, never ran
  kRunning,    // holds pages, may be in the next step
  kPaused,     // as running, but its reader is full
  kPreempted,  // lost its pages; will compute all its tokens again
};

struct Sequence {
  RequestId id;
  std::uint64_t arrival = 0;  // order of admission to the engine
  std::string tenant;
  std::vector<TokenId> tokens;  // the prompt, then what was generated
  SequenceStatus status = SequenceStatus::kWaiting;
  bool reader_full = false;
  bool awaits_mask = false;  // its logits are there; it is in no step until a token was sampled
  state::SequenceState state;

  bool yielded = false;             // lost its place to a tenant that had none
  std::uint64_t last_turn = 0;      // the number of its last row, counted over all
  std::int64_t times_bypassed = 0;  // others were admitted before it although it came first

  // What the prefix cache gave at the first admission; -1 before.
  std::int64_t cached_tokens = -1;
  state::PrefixChain chain = {};
  std::vector<std::int64_t> marks = {};  // positions ahead that deserve a checkpoint, ascending
  std::vector<state::StateSnapshot> checkpoints = {};  // taken, not yet proved good by logits
  std::int64_t verified = 0;  // positions whose logits were good since it was admitted

  // Tokens whose keys and values are still missing; at least one while it runs, none while it
  // awaits a mask.
  std::int64_t num_pending() const {
    return static_cast<std::int64_t>(tokens.size()) - state.num_positions();
  }
  bool can_run() const { return !reader_full && !awaits_mask; }
  bool holds_pages() const {
    return status == SequenceStatus::kRunning || status == SequenceStatus::kPaused;
  }
};

// A run of tokens of one sequence in a step.
struct ScheduledRow {
  Sequence* sequence = nullptr;
  std::int64_t begin = 0;
  std::int64_t count = 0;
  bool wants_logits = false;  // its last token is the newest of the sequence
  bool chooses = false;       // wants the most probable token in their place
  bool stays = false;         // or leaves them where they were computed, see StepRunner::shortlist
};

}  // namespace flotilla::engine
