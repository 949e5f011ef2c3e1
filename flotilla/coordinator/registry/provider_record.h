// What is known about one connected node. Owned by ProviderRegistry; core strand only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "flotilla/base/clock.h"
#include "flotilla/base/ids.h"
#include "flotilla/coordinator/registry/node_link.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::coordinator {

struct ProviderRecord;

// Place of a provider in a model's order: least loaded first, then the one that was chosen longest
// ago.
struct RouteKey {
  std::uint64_t load = 0;       // attempts under way, in 1/65536 of the slots
  std::uint64_t last_pick = 0;  // number of the last dispatch to it
  ProviderRecord* provider = nullptr;
  auto operator<=>(const RouteKey&) const = default;
};

struct ModelSlot {
  protocol::ModelOffer offer;
  protocol::SlotLoad load;         // from the last heartbeat
  std::uint32_t num_attempts = 0;  // ours: prepared, running, or cancelled and not acknowledged yet
  std::uint64_t last_pick = 0;
  Clock::Instant busy_until{};  // it refused lately
  bool listed = false;          // in the last Register
  bool indexed = false;
  RouteKey key;  // while indexed
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
  bool draining = false;
};

}  // namespace flotilla::coordinator
