#include "bench/fleet/nodes.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>
#include <vector>

#include "bench/fleet/scripted_node.h"
#include "bench/fleet/sockets.h"
#include "flotilla/coordinator/registry/node_table.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/log/log.h"

namespace flotilla::bench {
namespace {

using namespace std::chrono_literals;

volatile std::sig_atomic_t stopping = 0;

Result<std::vector<provider::LinkOptions>> invite_all(const NodesOptions& options) {
  FLOTILLA_TRY(store::Database database, coordinator::open_database(options.database));
  const std::string key =
      options.identity_file.empty() ? options.database + ".key" : options.identity_file;
  FLOTILLA_TRY(const protocol::Identity coordinator, protocol::Identity::load_or_create(key));
  const std::int64_t now = SystemClock().unix_seconds();
  std::vector<provider::LinkOptions> out;
  for (std::int64_t i = 0; i < options.nodes; ++i) {
    const std::string name =
        "bench-" + std::to_string(now) + "-" + std::to_string(::getpid()) + "-" + std::to_string(i);
    FLOTILLA_TRY(const protocol::Seed secret, coordinator::invite_node(database, name, now));
    out.push_back({.websocket = {.url = options.url},
                   .credentials = {.node = name,
                                   .identity = protocol::Identity::generate(),
                                   .coordinator_key = coordinator.public_key(),
                                   .invite_secret = secret,
                                   .software = "fleet_bench"}});
  }
  return out;
}

}  // namespace

Result<bool> run_nodes(const NodesOptions& options) {
  raise_limits();
  FLOTILLA_TRY_STATUS(pin_to(options.cpu));
  log::configure(log::Level::kError, log::Format::kText);
  std::signal(SIGTERM, [](int) { stopping = 1; });
  std::signal(SIGINT, [](int) { stopping = 1; });
  FLOTILLA_TRY(std::vector<provider::LinkOptions> links, invite_all(options));
  const SystemClock clock;
  NodeCounters counters;
  net::IoRuntime io(options.threads);
  std::vector<std::shared_ptr<ScriptedNode>> nodes;
  const NodeSetup setup{options.model, static_cast<std::uint32_t>(options.slots), options.script};
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (provider::LinkOptions& link : links) {
    while (stopping == 0 &&
           static_cast<double>(nodes.size()) > 50 + seconds() * options.joins_per_s)
      std::this_thread::sleep_for(2ms);
    nodes.push_back(std::make_shared<ScriptedNode>(io, clock, setup, counters));
    nodes.back()->start(std::move(link));
  }
  const double patience = options.join_timeout_s > 0
                              ? options.join_timeout_s
                              : 30 + 2 * static_cast<double>(options.nodes) / options.joins_per_s;
  while (stopping == 0 && counters.joined < options.nodes && seconds() < patience)
    std::this_thread::sleep_for(5ms);
  const bool all_joined = counters.joined >= options.nodes;
  std::printf("%s: %lld of %lld nodes joined in %.1f s, %lld refused for a while\n",
              all_joined ? "ready" : "not ready", static_cast<long long>(counters.joined),
              static_cast<long long>(options.nodes), seconds(),
              static_cast<long long>(counters.refused));
  std::fflush(stdout);
  const double until = seconds() + options.serve_s;
  while (stopping == 0 && all_joined && (options.serve_s == 0 || seconds() < until))
    std::this_thread::sleep_for(20ms);
  std::printf("%lld up, %lld links lost; %lld jobs, %lld finished, %lld cancelled, %lld tokens\n",
              static_cast<long long>(counters.up), static_cast<long long>(counters.lost),
              static_cast<long long>(counters.jobs), static_cast<long long>(counters.finished),
              static_cast<long long>(counters.cancelled), static_cast<long long>(counters.tokens));
  const bool still_there = counters.lost == 0;
  for (const auto& node : nodes) node->stop();
  std::this_thread::sleep_for(200ms);
  return all_joined && still_there;
}

}  // namespace flotilla::bench
