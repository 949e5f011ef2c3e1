// What the dispatcher is given: its limits, requests, and nodes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "flotilla/base/ids.h"
#include "flotilla/coordinator/gateway/in_flight.h"
#include "flotilla/coordinator/registry/machine_memory.h"
#include "flotilla/coordinator/registry/node_link.h"
#include "flotilla/coordinator/routing/route_ask.h"
#include "flotilla/coordinator/routing/warm_pool.h"
#include "flotilla/gates/reason.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::coordinator {

struct DispatchLimits {
  std::chrono::milliseconds lease_timeout{15'000};  // Prepare without an answer
  // The accounts without an answer. Before a stream gets its first comment, and with it its 200.
  std::chrono::milliseconds money_timeout{8'000};
  // A Prepare without an answer is sent to a second node; zero: never.
  std::chrono::milliseconds hedge_after{2'000};
  std::size_t max_hedges = 64;  // at a time
  std::chrono::milliseconds queue_timeout{
      30'000};  // all nodes being busy or away; from admission, or from the loss of the node
  std::chrono::milliseconds first_token_timeout{
      600'000};  // Start without a frame: a long prompt on a slow machine
  std::chrono::milliseconds stall_timeout{120'000};  // between two frames of an attempt
  std::chrono::milliseconds cancel_ack_timeout{5'000};
  std::chrono::milliseconds heartbeat_interval{5'000};
  std::chrono::milliseconds dead_after{15'000};  // a node that sends nothing
  std::chrono::milliseconds min_busy{100};       // before a node that refused is asked again
  std::chrono::milliseconds max_busy{5'000};
  // A tick that comes so late means that this process was stopped, and what nodes sent meanwhile is
  // still unread. Zero: never.
  std::chrono::milliseconds slept_through{0};
  MachineLimits machines = {};
  std::size_t max_queued_per_model = 1'024;
  std::uint32_t max_failures = 4;   // attempts of one job that end badly without a token between
  std::uint32_t max_attempts = 64;  // that end badly in all
  std::size_t max_pending_bytes = 4u << 20;  // for a client that reads slowly, per request
  std::size_t max_held_bytes = 64u << 20;    // per choice of an answer that is not streamed
  gates::Modes gates = {};
  WarmLimits warm = {};
};

// What the gateway hands over. Everything that must be the same on every attempt is fixed in
// `prepare`.
struct Admission {
  RequestId id;
  std::string name;
  bool stream = false;
  std::uint32_t num_choices = 1;
  std::shared_ptr<const protocol::Prepare> prepare;
  EventSink sink;
  std::uint64_t key = 0;   // API key, for fairness between keys
  AccountId account = {};  // pays
  bool is_free = false;    // whatever the prices are
  std::shared_ptr<const RouteAsk> ask = {};
};

// A node that has passed the handshake.
struct JoinedNode {
  ProviderId id;
  std::string node;
  std::shared_ptr<NodeLink> link;
};

}  // namespace flotilla::coordinator
