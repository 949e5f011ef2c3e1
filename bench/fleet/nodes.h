// Many scripted nodes in one process. Each speaks the real link protocol over a connection of its
// own: invited, handshake, sealed frames, registration, heartbeats, leases, tokens, flow, cancels.
#pragma once

#include <cstdint>
#include <string>

#include "bench/fleet/script.h"
#include "flotilla/base/result.h"

namespace flotilla::bench {

struct NodesOptions {
  std::string database;       // of the coordinator: the nodes are invited there
  std::string identity_file;  // of the coordinator; empty: the database's path and ".key"
  std::string url = "ws://127.0.0.1:8080/v1/link";
  std::int64_t nodes = 10;
  std::int64_t slots = 64;  // jobs at a time on each node
  std::string model = "bench";
  double joins_per_s = 45;  // the coordinator takes 50 a second from one address, in bursts of 100
  double serve_s = 0;       // after all have joined; 0: until SIGTERM or SIGINT
  double join_timeout_s = 0;  // 0: what the rate makes likely, and half a minute
  int threads = 1;
  Script script;
  int cpu = -1;
};
// Prints "ready" when all have joined. True when they all did, and all were still there at the end.
Result<bool> run_nodes(const NodesOptions& options);

}  // namespace flotilla::bench
