// Which models should be loaded where: plans loads for models that are asked for and nowhere
// resident (or everywhere full), on nodes that have their files, and unloads of idle models that
// are missed less. Plans only; the dispatcher sends the orders. Core strand only.
//
// The planner looks at nodes through the gates that the router uses, so both mean the same by "it
// fits". A node may refuse all the same: then that pair is left alone for a while.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "flotilla/coordinator/registry/provider_registry.h"
#include "flotilla/coordinator/routing/demand.h"
#include "flotilla/coordinator/routing/router.h"

namespace flotilla::coordinator {

enum class WarmMode : std::uint8_t {
  kOff,
  kLoad,  // loads where there is room
  kSwap,  // and unloads to make room
};

struct WarmLimits {
  WarmMode mode = WarmMode::kLoad;
  std::chrono::seconds after_failure{120};  // before the pair is tried again
  std::chrono::seconds after_refusal{30};   // the same when memory was short or the node drained
  std::chrono::seconds min_resident{60};    // before a model may be unloaded again
  std::chrono::seconds order_timeout{600};  // a load without an answer
  std::chrono::seconds room_timeout{30};    // an unload that frees nothing
  std::size_t max_loads = 16;               // under way at a time, in the whole fleet
};

struct WarmOrder {
  enum class What { kLoad, kUnload };
  What what = What::kLoad;
  ProviderRecord* provider = nullptr;
  std::string model;
};

// A model for which jobs wait.
struct Wanted {
  std::string model;
  std::size_t num_queued = 0;
};

class WarmPool {
 public:
  // All must outlive it.
  WarmPool(ProviderRegistry& registry, const Router& router, const Clock& clock, WarmLimits limits)
      : registry_(registry), router_(router), clock_(clock), limits_(limits) {}

  void note_demand(const std::string& model) { demand_.note(model, clock_.now()); }
  // Orders for now; they count as given. At most one load per node and per model at a time.
  std::vector<WarmOrder> plan(std::span<const Wanted> wanted);
  // A node answered an order, or says how a model fares. `failure`: with kFailed.
  void on_status(ProviderRecord& provider, const std::string& model, protocol::ModelState state,
                 const Error* failure);
  // Somebody else ordered it: it is not undone at once.
  void leave_alone(const ProviderId& provider, const std::string& model);
  void forget(const ProviderId& provider);

  // Whether a request for a model that is resident nowhere may wait for a load. Not where its files
  // proved to be broken.
  bool may_load(const std::string& model) const;
  const WarmLimits& limits() const { return limits_; }

 private:
  using Pair = std::pair<ProviderId, std::string>;
  struct Candidate {
    ProviderRecord* provider = nullptr;
    double seconds = 0;  // until it would answer
    std::size_t jobs = 0;
    gates::Verdict load;  // kNone: there is room
  };
  bool wants_load(const Wanted& wanted, const ProviderRegistry::ModelIndex& index) const;
  std::vector<Candidate> candidates(const std::string& model,
                                    const ProviderRegistry::ModelIndex& index) const;
  // The cheapest set of idle models whose going makes room; empty: none is worth it.
  std::vector<std::string> victims(const Wanted& wanted, const Candidate& candidate) const;
  double loss_of(const std::string& model, const ModelSlot& slot, Clock::Instant now) const;
  double gain_of(const Wanted& wanted, const ModelSlot& slot, Clock::Instant now) const;
  bool suppressed(const ProviderId& provider, const std::string& model, Clock::Instant now) const;
  static bool is_loading(const ProviderRecord& provider);

  ProviderRegistry& registry_;
  const Router& router_;
  const Clock& clock_;
  const WarmLimits limits_;
  Demand demand_;
  std::map<Pair, Clock::Instant> suppressed_;  // until then
  std::set<Pair> broken_;                      // failed by themselves, and not loaded since
  std::map<Pair, Clock::Instant> resident_since_;
  std::map<ProviderId, Clock::Instant> making_room_;  // nothing else is unloaded until then
};

}  // namespace flotilla::coordinator
