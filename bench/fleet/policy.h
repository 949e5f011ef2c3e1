// How a simulated coordinator chooses nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/fleet/trace.h"
#include "flotilla/base/clock.h"
#include "flotilla/base/result.h"

namespace flotilla::bench {

// What became of a job.
struct Outcome {
  double first_seconds = 0;  // from start to first content
  double all_seconds = 0;
  std::int64_t cached_tokens = 0;
};

// Tickets are the simulation's names for jobs under way.
class Policy {
 public:
  virtual ~Policy() = default;
  // The node for it, whose slot is then taken; nothing when all are full.
  virtual std::optional<std::size_t> choose(std::uint64_t ticket, const Arrival& arrival) = 0;
  virtual void first_content(std::uint64_t ticket) = 0;
  virtual void finished(std::uint64_t ticket, const Outcome& outcome) = 0;
  // Every five seconds of virtual time, as nodes tell it.
  virtual void heartbeat(std::size_t node, std::size_t running, double prefill_tokens_per_s) = 0;
};

// "router" (the coordinator's own), "random", "round_robin", "least_connections". `clock` must
// outlive the policy.
Result<std::unique_ptr<Policy>> make_policy(const std::string& name, std::size_t nodes,
                                            std::size_t slots, const Clock& clock,
                                            std::uint64_t seed);

}  // namespace flotilla::bench
