// flotilla provider: a node of a fleet.
#include <CLI/CLI.hpp>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "apps/flotilla/commands.h"
#include "apps/flotilla/console.h"
#include "apps/flotilla/link_target.h"
#include "apps/flotilla/listen_address.h"
#include "apps/flotilla/node_state.h"
#include "apps/flotilla/server_models.h"
#include "apps/flotilla/signals.h"
#include "flotilla/log/log.h"
#include "flotilla/provider/agent.h"

namespace flotilla::apps {
namespace {

struct ProviderConfig {
  std::string join, state_dir = default_state_dir();
  LinkSettings link;
  std::int64_t drain_timeout_s = 60, max_waiting = 64;
  std::string log_level = "info", log_format = "text";
  ServerModels models;
};

void declare(settings::Settings& s, ProviderConfig& c) {
  s.add("join", &c.join,
        "token of `flotilla-coordinator nodes invite`, or @FILE; needed the first time only",
        /*secret=*/true);
  s.add("coordinator", &c.link.coordinator,
        "wss://HOST:PORT/v1/link; default: what the token says");
  s.add("state_dir", &c.state_dir, "folder for this node's key and token");
  s.add("tls.ca_file", &c.link.ca_file,
        "PEM authorities for the coordinator's certificate; default: the token's pin, else the "
        "system's");
  s.add("insecure", &c.link.insecure, "allow a plain ws:// connection to another machine");
  s.add("lazy", &c.models.lazy, "load models when the coordinator asks, not at start");
  s.add("max_waiting", &c.max_waiting, 0, 100'000, "jobs of a model that may wait here");
  s.add("drain_timeout_s", &c.drain_timeout_s, 0, 86'400,
        "how long running jobs may take at shutdown; shortly before, the rest goes to other nodes");
  s.add("log_level", &c.log_level, "debug, info, warn or error");
  s.add("log_format", &c.log_format, "text or json");
  declare(s, c.models);
}

Result<provider::AgentOptions> agent_options(const ProviderConfig& config) {
  FLOTILLA_TRY(NodeState state, open_node_state(config.state_dir, config.join));
  const std::string new_token = state.new_token;
  FLOTILLA_TRY(LinkTarget target, link_target(std::move(state), config.link));
  provider::AgentOptions options{.link = {.websocket = std::move(target.websocket),
                                          .credentials = std::move(target.credentials)}};
  if (!new_token.empty()) {
    options.on_registered = [dir = config.state_dir, new_token] {
      if (Status kept = keep_token(dir, new_token); !kept.ok()) {
        log::error("join_token_not_kept", {{"reason", kept.error().message}});
      }
    };
  }
  options.software = options.link.credentials.software;
  options.num_threads = static_cast<std::uint32_t>(config.models.threads);
  options.jobs.max_waiting = static_cast<std::uint32_t>(config.max_waiting);
  return options;
}

int run_provider(const ProviderConfig& config, const std::string& description) {
  if (Status logging = configure_log(config.log_level, config.log_format); !logging.ok())
    return report(logging.error());
  auto options = agent_options(config);
  if (!options.ok()) return report(options.error());
  const auto state_lock = NodeLock::take(config.state_dir);
  if (!state_lock.ok()) return report(state_lock.error());
  log::info("settings", {{"values", description}});

  const SystemClock clock;
  net::IoRuntime io(2);
  const auto memory = make_memory(config.models.engine);
  if (!memory.ok()) return report(memory.error());
  provider::ModelManager models(make_loader(config.models, *memory), clock);
  if (Status added = add_models(models, config.models, *memory); !added.ok())
    return report(added.error());
  Signals signals(io);  // only now: until here Ctrl-C ends the program at once
  std::atomic<bool> drained{false};
  std::mutex mutex;
  std::optional<Error> rejected;  // guarded by mutex
  options->on_rejected = [&](const Error& error) {
    std::lock_guard lock(mutex);
    if (!rejected) rejected = error;
    signals.stop();
  };
  log::info(
      "joining",
      {{"node", options->link.credentials.node},
       {"provider", protocol::provider_id(options->link.credentials.identity.public_key()).value},
       {"coordinator", options->link.websocket.url}});
  options->memory = memory->device ? memory->device : memory->host;
  options->accelerator = memory->device_name;
  provider::Agent agent(io, models, clock, std::move(*options));
  agent.start();

  while (signals.wait() == Signals::Asked::kReload) {
  }
  {
    std::lock_guard lock(mutex);
    if (rejected) return report(*rejected);
  }
  const auto limit = std::chrono::seconds(config.drain_timeout_s);
  agent.drain(limit, [&](bool) { drained = true; });
  signals.wait_until([&] { return drained.load(); }, limit + std::chrono::seconds(1));
  log::info("stopped", {{"jobs_cut", agent.num_jobs()}});
  return 0;
}

}  // namespace

void add_provider(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("provider", "Join a fleet and run its jobs on this machine");
  auto config = std::make_shared<ProviderConfig>();
  auto declared = std::make_shared<settings::Settings>();
  declare(*declared, *config);
  declared->bind_flags(*command);
  command->callback([config, declared, &exit_code] {
    if (Status loaded = declared->load(settings::process_environment()); !loaded.ok()) {
      exit_code = report(loaded.error());
      return;
    }
    exit_code = run_provider(*config, declared->describe());
  });
}

}  // namespace flotilla::apps
