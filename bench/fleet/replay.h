// Judges routing policies on a trace, in virtual time: the coordinator's own Router, and others
// that people would try first, on the same simulated nodes.
#pragma once

#include <cstdint>
#include <string>

#include "bench/fleet/trace.h"
#include "flotilla/base/result.h"

namespace flotilla::bench {

// What a node can do. Prompts are computed one after the other; answers decode side by side, each a
// little slower for each of the others.
struct NodeModel {
  std::int64_t slots = 8;
  double prefill_tokens_per_s = 4'000;
  double decode_tokens_per_s = 40;
  double slowdown = 0.03;              // of decoding, for each other answer
  std::int64_t cache_tokens = 60'000;  // of conversations, the oldest goes first
  double network_s = 0.005;            // one way
};

struct ReplayOptions {
  std::string trace;  // a file; empty: made from `made`
  MadeTrace made;
  std::int64_t nodes = 20;
  NodeModel node;
  double spread = 3;  // the fastest node is so many times as fast as the slowest
  std::string policies = "router,random,round_robin,least_connections";
  std::uint64_t seed = 1;
  bool json = false;
};

struct ReplayResult {
  std::size_t num_done = 0;
  double first_p50 = 0, first_p99 = 0;  // seconds from arrival to first content
  double cached_share = 0;              // of the prompt tokens that a node could have had cached
  double computed_share = 0;            // of all prompt tokens
  double busiest =
      0;  // computed tokens and answers of the busiest node, in its own time, to the mean
};
Result<ReplayResult> replay(const std::vector<Arrival>& trace, const std::string& policy,
                            const ReplayOptions& options);
// Prints a table. True when every policy answered every arrival.
Result<bool> run_replay(const ReplayOptions& options);

}  // namespace flotilla::bench
