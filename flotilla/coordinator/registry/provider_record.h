// What is known about one connected node. Owned by ProviderRegistry; core strand only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "flotilla/base/clock.h"
#include "flotilla/base/ids.h"
#include "flotilla/coordinator/catalog/catalog_view.h"
#include "flotilla/coordinator/registry/evidence.h"
#include "flotilla/coordinator/registry/node_link.h"
#include "flotilla/coordinator/registry/pulse.h"
#include "flotilla/gates/judge.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::coordinator {

struct ProviderRecord;

// Place of a provider in a model's order: the first content soonest, in steps; then least loaded;
// then the one that was chosen longest ago.
struct RouteKey {
  std::uint32_t step = 0;       // time_step() of a prompt of kUsualPrompt tokens
  std::uint64_t load = 0;       // attempts under way, in 1/65536 of the slots
  std::uint64_t last_pick = 0;  // number of the last dispatch to it
  ProviderRecord* provider = nullptr;
  auto operator<=>(const RouteKey&) const = default;
};

inline constexpr std::int64_t kUsualPrompt = 512;

struct ModelSlot {
  protocol::ModelOffer offer;
  std::int64_t offered_context = 0;  // as the node says; the offer's is what counts
  gates::ModelFacts facts;           // of offer and catalog, as the gates want it
  Standing standing = Standing::kFree;
  std::int64_t version = 0;  // of the catalog; 0: it does not know these files
  protocol::SlotLoad load;   // from the last heartbeat
  Clock::Instant load_at{};  // when that came
  ModelHistory history;
  std::int64_t prefill_tokens = 0;  // of prompts that we gave it and that have no token yet
  std::uint32_t num_attempts = 0;  // ours: prepared, running, or cancelled and not acknowledged yet
  std::uint64_t last_pick = 0;
  Clock::Instant busy_until{};                  // it refused lately
  std::optional<Clock::Instant> loading_since;  // the node loads it
  bool listed = false;                          // in the last Register
  bool stuck = false;                           // its engine does not come to an end of a step
  bool sound = false;                           // counted in ModelIndex::num_sound
  std::set<RouteKey>* place = nullptr;          // the set of the model's index that it stands in
  RouteKey key;                                 // while it does

  // What clients mean by its name.
  bool serves() const { return standing == Standing::kFree || standing == Standing::kActive; }
};

struct ProviderRecord {
  ProviderId id;
  std::string node;
  std::string software;
  std::shared_ptr<NodeLink> link;
  protocol::HardwareInfo hardware;
  std::unordered_map<std::string, ModelSlot> slots;  // by model
  std::unordered_set<JobId> jobs;                    // whose current attempt is here
  Clock::Instant last_frame{};
  std::optional<std::uint64_t> free_bytes;  // for loading, as its last heartbeat says
  Evidence round_trip;                      // seconds
  std::uint64_t acked_sequence = 0;         // of the heartbeat that was acknowledged last
  Clock::Instant acked_at{};
  bool draining = false;
  std::optional<Clock::Instant> hand_over_at;  // draining: what still runs then goes elsewhere

  // Signs of life while it has jobs; not looked at when the node sends no Progress.
  bool shows_progress = false;
  Pulse pulse;
  bool silent = false;  // overdue: it gets nothing until it is heard again

  // After a fault other nodes are preferred until then; zero: no such time. After several in a row
  // it is left alone.
  Clock::Instant cooling_until{};
  bool shunned = false;  // while cooling
  bool cooling() const { return cooling_until != Clock::Instant{}; }
};

}  // namespace flotilla::coordinator
