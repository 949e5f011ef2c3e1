// Chooses the node for a job. Core strand only.
//
// Nodes are compared by the expected time to first content: round trip, what is ahead of the job,
// the prompt at the speed measured for its length. Where a node holds the beginning of the
// conversation it goes there, unless that takes longer by more than it saves. Among equals (a
// quarter or 100 ms apart) the least loaded is taken, then the one that was chosen longest ago.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "flotilla/base/ids.h"
#include "flotilla/coordinator/registry/first_content.h"
#include "flotilla/coordinator/registry/provider_registry.h"
#include "flotilla/coordinator/routing/prefix_table.h"
#include "flotilla/coordinator/routing/route_ask.h"

namespace flotilla::coordinator {

// What a node must be for a job.
struct RouteWish {
  std::span<const ProviderId> excluded = {};
  // An answer that has begun can only be continued by the same weights, and bit by bit only where
  // the numbers are the same. Empty: any.
  std::string_view model_digest = {};
  std::string_view numerics_id = {};
  const RouteAsk* ask = nullptr;    // nullptr: nothing is known, all nodes are equally fast
  std::int64_t resumed_tokens = 0;  // of an answer that has begun: computed again with the prompt
};

// Where a job goes. It holds one of the node's slots until release_slot(), and `prefill_tokens` of
// its time until prefill_done().
struct Route {
  ProviderRecord* provider = nullptr;
  std::int64_t prefill_tokens = 0;
  std::int64_t prefill_ahead = 0;  // of other prompts, there already
  std::int64_t saved_tokens = 0;   // expected from its prefix cache
  std::uint64_t saved_prefix = 0;
  gates::Reason shadow = gates::Reason::kNone;  // a gate in shadow would have refused this

  explicit operator bool() const { return provider != nullptr; }
};

class Router {
 public:
  // Both must outlive it.
  Router(ProviderRegistry& registry, const Clock& clock, gates::Modes modes = {})
      : registry_(registry), clock_(clock), modes_(modes) {}

  // The best node that can start a job of `model` now and is as wished. Takes one of its slots. No
  // provider when there is none. Nodes that cool down after a fault come last; those with several
  // faults in a row only where there is no other node.
  Route take_slot(const std::string& model, const RouteWish& wish);
  void release_slot(ProviderRecord& provider, const std::string& model);
  // The prompt is computed, or given up.
  void prefill_done(ProviderRecord& provider, const std::string& model, std::int64_t tokens);

  // What take_slot would give; nothing is taken.
  Route best(const std::string& model, const RouteWish& wish) const;
  bool has_slot(const std::string& model, const RouteWish& wish) const {
    return static_cast<bool>(best(model, wish));
  }
  // Whether the model has a free slot at all.
  bool any_free(const std::string& model) const;
  // How many nodes list `model` and are as wished, whatever their state.
  std::size_t num_candidates(const std::string& model, const RouteWish& wish) const;
  // Of those, how many can be hoped for without waiting for their return: not silent, not draining.
  std::size_t num_reachable(const std::string& model, const RouteWish& wish) const;

  // Evidence. A prompt of the ask has turned out to have so many tokens and is computed here.
  void learn_prompt(const std::string& model, const RouteAsk& ask, const ProviderRecord& provider,
                    std::int64_t tokens);
  // A job has ended well: `first` from start to first token, `computed` tokens of prompts in that
  // time (its own without the cached ones, and those ahead of it), `all` from start to finish.
  struct Outcome {
    double first_seconds = 0;
    std::int64_t computed_tokens = 0;
    double all_seconds = 0;
    std::int64_t saved_tokens = 0;   // as the route expected
    std::int64_t cached_tokens = 0;  // as the node counted
    std::uint64_t saved_prefix = 0;
  };
  void learn_outcome(ProviderRecord& provider, const std::string& model, const Outcome& outcome);

  std::int64_t expected_tokens(const std::string& model, const RouteAsk& ask) const;
  // The gates' verdict about any node; for explanations and for what a client is told.
  gates::Verdict judge(const ProviderRecord& provider, const std::string& model,
                       const RouteWish& wish) const;
  gates::OutlookOf outlook(const std::string& model, const RouteWish& wish) const;
  // Whether every node that lists the model is out for good; then the verdict about one of them.
  std::optional<gates::Verdict> hopeless(const std::string& model, const RouteWish& wish) const;
  // What is expected of a node, its prefix cache included.
  struct Expectation {
    FirstContent time;
    std::int64_t prompt_tokens = 0;
    std::int64_t saved_tokens = 0;
  };
  Expectation expect(const ProviderRecord& provider, const std::string& model,
                     const RouteWish& wish) const;
  const gates::Modes& modes() const { return modes_; }

 private:
  using Set = std::set<RouteKey>;
  enum class Room { kWanted, kWhatever };
  Route best_of(const Set& set, const ProviderRegistry::ModelIndex& index, const std::string& model,
                const RouteWish& wish, Room room) const;
  bool gate_admits(const ModelSlot& slot, const gates::Ask& ask) const;
  gates::Ask job_ask(const std::string& model, const RouteWish& wish) const;

  ProviderRegistry& registry_;
  const Clock& clock_;
  const gates::Modes modes_;
  PrefixTable prefixes_;
  std::uint64_t num_picks_ = 0;
};

}  // namespace flotilla::coordinator
