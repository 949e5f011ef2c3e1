// Load and fault tools of a fleet; README.md says how they are used together.
//   fleet_bench load|streams|nodes|mock|replay
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "bench/fleet/load.h"
#include "bench/fleet/mock.h"
#include "bench/fleet/nodes.h"
#include "bench/fleet/replay.h"

namespace flotilla::bench {
namespace {

void add_shape(CLI::App& app, RequestShape& shape) {
  app.add_option("--url", shape.url, "http://IPV4:PORT/PATH");
  app.add_option("--key", shape.key, "API key");
  app.add_option("--model", shape.model);
  app.add_option("--max-tokens", shape.max_tokens);
  app.add_option("--prompt-bytes", shape.prompt_bytes);
}

void add_script(CLI::App& app, Script& script) {
  app.add_option("--tokens", script.tokens, "of an answer, at most");
  app.add_option("--tokens-per-frame", script.tokens_per_frame)->check(CLI::Range(1, 4'096));
  app.add_option("--first-ms", script.first_ms, "until the first token");
  app.add_option("--interval-ms", script.interval_ms, "between frames; 0: as fast as they go");
}

int report(const Result<bool>& result) {
  if (result.ok()) return *result ? 0 : 1;
  std::fprintf(stderr, "fleet_bench: %s\n", result.error().message.c_str());
  return 2;
}

Result<bool> as_bool(const Status& status) {
  if (!status.ok()) return status.error();
  return true;
}

int main_of(int argc, char** argv) {
  CLI::App app("Load and fault tools of a fleet");
  app.require_subcommand(1);

  LoadOptions load;
  CLI::App* loading = app.add_subcommand("load", "Requests at a fixed rate, latency from schedule");
  add_shape(*loading, load.shape);
  loading->add_option("--streamed", load.shape.streamed, "share of streams")
      ->check(CLI::Range(0.0, 1.0));
  loading->add_option("--rate", load.rate, "requests a second")->check(CLI::PositiveNumber);
  loading->add_flag("--poisson", load.poisson, "random arrivals, else evenly spaced");
  loading->add_option("--closed", load.closed, "keep so many in flight, whatever the rate");
  loading->add_option("--warmup", load.warmup_s, "seconds that are not counted");
  loading->add_option("--seconds", load.seconds);
  loading->add_option("--timeout", load.timeout_s);
  loading->add_option("--connections", load.connections);
  loading->add_option("--seed", load.seed);
  loading->add_option("--server-pid", load.server_pids, "whose processor time is reported");
  loading->add_option("--cpu", load.cpu, "run on this processor only");
  loading->add_flag("--json", load.json);

  StreamsOptions streams;
  streams.shape.max_tokens = 1'000'000;
  CLI::App* holding = app.add_subcommand("streams", "Many open streams, and the memory of each");
  add_shape(*holding, streams.shape);
  holding->add_option("--streams", streams.streams)->check(CLI::PositiveNumber);
  holding->add_option("--opens-per-s", streams.opens_per_s)->check(CLI::PositiveNumber);
  holding->add_option("--hold", streams.hold_s, "seconds");
  holding->add_option("--timeout", streams.timeout_s, "seconds until all must have begun");
  holding->add_option("--server-pid", streams.server_pids, "whose memory is reported");
  holding->add_flag("--json", streams.json);

  NodesOptions nodes;
  CLI::App* joining = app.add_subcommand("nodes", "Scripted nodes over the real link");
  joining->add_option("--database", nodes.database, "of the coordinator")->required();
  joining->add_option("--identity-file", nodes.identity_file);
  joining->add_option("--url", nodes.url, "ws://HOST:PORT/v1/link");
  joining->add_option("--nodes", nodes.nodes)->check(CLI::PositiveNumber);
  joining->add_option("--slots", nodes.slots)->check(CLI::PositiveNumber);
  joining->add_option("--model", nodes.model);
  joining->add_option("--joins-per-s", nodes.joins_per_s)->check(CLI::PositiveNumber);
  joining->add_option("--serve", nodes.serve_s, "seconds after all have joined; 0: until a signal");
  joining->add_option("--join-timeout", nodes.join_timeout_s, "seconds");
  joining->add_option("--threads", nodes.threads)->check(CLI::Range(1, 64));
  joining->add_option("--cpu", nodes.cpu, "run on this processor only");
  add_script(*joining, nodes.script);

  MockOptions mock;
  CLI::App* serving = app.add_subcommand("mock", "The script as an HTTP upstream");
  serving->add_option("--listen", mock.listen, "http://IPV4:PORT");
  serving->add_option("--cpu", mock.cpu, "run on this processor only");
  add_script(*serving, mock.script);

  ReplayOptions replaying;
  CLI::App* judging = app.add_subcommand("replay", "Routing policies on a trace, in virtual time");
  judging->add_option("--trace", replaying.trace, "CSV or JSON lines; else one is made");
  judging->add_option("--policies", replaying.policies);
  judging->add_option("--nodes", replaying.nodes)->check(CLI::Range(1, 100'000));
  judging->add_option("--slots", replaying.node.slots)->check(CLI::Range(1, 100'000));
  judging->add_option("--prefill", replaying.node.prefill_tokens_per_s);
  judging->add_option("--decode", replaying.node.decode_tokens_per_s);
  judging->add_option("--cache-tokens", replaying.node.cache_tokens);
  judging->add_option("--spread", replaying.spread, "fastest node to slowest");
  judging->add_option("--seconds", replaying.made.seconds);
  judging->add_option("--conversations-per-s", replaying.made.conversations_per_s);
  judging->add_option("--turns", replaying.made.turns);
  judging->add_option("--seed", replaying.made.seed);
  judging->add_flag("--json", replaying.json);

  CLI11_PARSE(app, argc, argv);
  if (*loading) return report(run_load(load));
  if (*holding) return report(run_streams(streams));
  if (*joining) return report(run_nodes(nodes));
  if (*serving) return report(as_bool(run_mock(mock)));
  replaying.seed = replaying.made.seed;
  return report(run_replay(replaying));
}

}  // namespace
}  // namespace flotilla::bench

int main(int argc, char** argv) { return flotilla::bench::main_of(argc, argv); }
