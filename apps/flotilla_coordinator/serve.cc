#include <CLI/CLI.hpp>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>

#include "apps/flotilla_coordinator/commands.h"
#include "flotilla/coordinator/config.h"
#include "flotilla/coordinator/coordinator_app.h"
#include "flotilla/log/log.h"
#include "flotilla/settings/settings.h"

namespace flotilla::apps {
namespace {

using coordinator::CoordinatorApp;
using coordinator::CoordinatorConfig;

void declare(settings::Settings& s, CoordinatorConfig& c) {
  s.add("listen", &c.listen, "HOST:PORT for clients, and for nodes unless link_listen is set");
  s.add("link_listen", &c.link_listen, "HOST:PORT for nodes alone");
  s.add("database", &c.database, "SQLite file, or postgresql://USER@HOST/NAME", true);
  s.add("identity_file", &c.identity_file, "this coordinator's own key (default: DATABASE.key)");
  s.add("tls.certificate_file", &c.tls_certificate_file, "PEM chain; read again on SIGHUP");
  s.add("tls.key_file", &c.tls_key_file, "PEM key of the certificate");
  s.add("insecure", &c.insecure, "allow plain HTTP on addresses other than loopback");
  s.add("cors.allowed_origins", &c.allowed_origins,
        "web pages that may call the API, e.g. https://chat.example.com");
  s.add("admin_key", &c.admin_key, "key of the admin API, or @FILE; without it that API is off",
        /*secret=*/true);
  s.add("io_threads", &c.io_threads, 1, 256, "threads for connections");
  s.add("max_body_mib", &c.max_body_mib, 1, 12, "largest request body");
  s.add("keepalive_after_s", &c.keepalive_after_s, 1, 3600,
        "silence before a stream gets comments");
  s.add("queue_timeout_s", &c.queue_timeout_s, 1, 3600,
        "how long a request waits when all nodes are busy");
  s.add("max_queued_per_model", &c.max_queued_per_model, 1, 1'000'000,
        "how many requests may wait");
  s.add("hedge_after_ms", &c.hedge_after_ms, 0, 3'600'000,
        "how long a node may prepare a request before a second one is asked; 0: never");
  s.add("first_token_timeout_s", &c.first_token_timeout_s, 1, 86'400,
        "start to first token before a node is given up");
  s.add("stall_timeout_s", &c.stall_timeout_s, 1, 86'400,
        "silence between tokens before a node is given up");
  s.add("warm_pool", &c.warm_pool,
        "off, load (models that are asked for, where there is room) or swap (unload others for "
        "them)");
  s.add("gates.hardware", &c.hardware_gate, "off, shadow or on: models too large for a machine");
  s.add("gates.load", &c.load_gate, "off, shadow or on: loads beyond a node's free memory");
  s.add("gates.state", &c.state_gate, "off, shadow or on: jobs beyond a node's state memory");
  s.add("catalog.only", &c.catalog_only, "serve no models but those of the catalog");
  s.add("catalog.downloads", &c.catalog_downloads,
        "who may fetch models from here: keys (every API key) or admin");
  s.add("drain_timeout_s", &c.drain_timeout_s, 0, 86'400,
        "how long running requests may take at shutdown");
  s.add("fee_basis_points", &c.fee_basis_points, 0, 10'000,
        "the operator's part of every charge, in hundredths of a percent");
  s.add("recovery_s", &c.recovery_s, 1, 86'400,
        "how long jobs of an earlier run may wait for their nodes");
  s.add("retention.jobs_days", &c.jobs_days, 0, 36'500, "rows of single jobs; 0: kept for ever");
  s.add("retention.ledger_days", &c.ledger_days, 0, 36'500,
        "single charges, before they are summed up; 0: kept for ever");
  s.add("retention.usage_days", &c.usage_days, 0, 36'500, "usage by day; 0: kept for ever");
  s.add("log_level", &c.log_level, "debug, info, warn or error");
  s.add("log_format", &c.log_format, "text or json");
}

// What signals ask for, for the main thread.
class Requests {
 public:
  void on_signal(int number) {
    std::lock_guard lock(mutex_);
    if (number == SIGHUP) {
      reload_ = true;
    } else {
      ++num_stops_;
    }
    changed_.notify_one();
  }
  enum class What { kReload, kStop };
  What wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reload_ || num_stops_ > 0; });
    if (num_stops_ > 0) return What::kStop;
    reload_ = false;
    return What::kReload;
  }
  // A second signal: do not wait.
  bool hurry() {
    std::lock_guard lock(mutex_);
    return num_stops_ > 1;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reload_ = false;  // guarded by mutex_
  int num_stops_ = 0;    // guarded by mutex_
};

int serve(const CoordinatorConfig& config, const std::string& description) {
  if (Status valid = coordinator::validate(config); !valid.ok()) return complain(valid.error());
  log::configure(*log::parse_level(config.log_level),
                 config.log_format == "json" ? log::Format::kJson : log::Format::kText);
  log::info("settings", {{"values", description}});
  const SystemClock clock;
  auto app = CoordinatorApp::start(config, clock);
  if (!app.ok()) return complain(app.error());
  Requests requests;
  const net::SignalWatcher signals((*app)->io(), [&](int number) { requests.on_signal(number); });
  while (requests.wait() == Requests::What::kReload) {
    if (Status reloaded = (*app)->reload_certificate(); reloaded.ok()) {
      log::info("certificate_reloaded", {});
    } else {
      log::error("certificate_reload_failed", {{"reason", reloaded.error().message}});
    }
  }
  (*app)->drain([&] { return requests.hurry(); });
  log::info("coordinator_stopped", {});
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("serve", "Serve clients and nodes");
  auto config = std::make_shared<CoordinatorConfig>();
  auto declared = std::make_shared<settings::Settings>();
  declare(*declared, *config);
  declared->bind_flags(*command);
  command->callback([config, declared, &exit_code] {
    if (Status loaded = declared->load(settings::process_environment()); !loaded.ok()) {
      exit_code = complain(loaded.error());
      return;
    }
    exit_code = serve(*config, declared->describe());
  });
}

}  // namespace flotilla::apps
