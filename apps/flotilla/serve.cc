// flotilla serve: a local OpenAI-compatible server.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "apps/flotilla/commands.h"
#include "apps/flotilla/console.h"
#include "apps/flotilla/listen_address.h"
#include "apps/flotilla/server_models.h"
#include "apps/flotilla/signals.h"
#include "flotilla/log/log.h"
#include "flotilla/provider/local_backend.h"
#include "flotilla/provider/metrics.h"
#include "flotilla/serving/http_surface.h"
#include "flotilla/serving/replies.h"

namespace flotilla::apps {
namespace {

constexpr std::chrono::milliseconds kFlushTime{1000};  // for the last answers at shutdown

struct ServeConfig {
  std::string listen = "127.0.0.1:8080";
  std::string tls_certificate_file, tls_key_file;
  bool insecure = false;
  std::vector<std::string> api_keys;
  std::vector<std::string> allowed_origins;
  std::int64_t io_threads = 2, max_body_mib = 32, keepalive_after_s = 10, drain_timeout_s = 30;
  std::string log_level = "info", log_format = "text";
  ServerModels models;
};

void declare(settings::Settings& s, ServeConfig& c) {
  s.add("listen", &c.listen, "HOST:PORT");
  s.add("tls.certificate_file", &c.tls_certificate_file, "PEM chain; read again on SIGHUP");
  s.add("tls.key_file", &c.tls_key_file, "PEM key of the certificate");
  s.add("insecure", &c.insecure, "allow plain HTTP on addresses other than loopback");
  s.add("api_keys", &c.api_keys, "key that clients must send; none: everybody may ask",
        /*secret=*/true);
  s.add("cors.allowed_origins", &c.allowed_origins,
        "web pages that may call the API, e.g. https://chat.example.com");
  s.add("io_threads", &c.io_threads, 1, 256, "threads for connections");
  s.add("max_body_mib", &c.max_body_mib, 1, 1024, "largest request body");
  s.add("keepalive_after_s", &c.keepalive_after_s, 1, 3600,
        "silence before a stream gets comments");
  s.add("drain_timeout_s", &c.drain_timeout_s, 0, 86'400,
        "how long running requests may take at shutdown");
  s.add("log_level", &c.log_level, "debug, info, warn or error");
  s.add("log_format", &c.log_format, "text or json");
  declare(s, c.models);
}

Result<net::HttpServerOptions> server_options(const ServeConfig& config) {
  FLOTILLA_TRY(const ListenAddress address, parse_listen_address(config.listen));
  net::HttpServerOptions options;
  options.host = address.host;
  options.port = address.port;
  options.max_body_bytes = static_cast<std::size_t>(config.max_body_mib) << 20;
  if (config.tls_certificate_file.empty() != config.tls_key_file.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "tls.certificate_file and tls.key_file need each other"};
  }
  if (!config.tls_certificate_file.empty()) {
    options.tls = net::TlsFiles{config.tls_certificate_file, config.tls_key_file};
  } else if (!address.is_loopback() && !config.insecure) {
    return Error{ErrorCode::kInvalidArgument,
                 "listening on " + address.host +
                     " without TLS shows prompts to the network: give tls.certificate_file "
                     "and tls.key_file, or say --insecure"};
  }
  return options;
}

int serve(const ServeConfig& config, const std::string& description) {
  if (Status logging = configure_log(config.log_level, config.log_format); !logging.ok())
    return report(logging.error());
  auto options = server_options(config);
  if (!options.ok()) return report(options.error());
  for (const std::string& origin : config.allowed_origins) {
    if (Status valid = serving::check_origin(origin); !valid.ok()) return report(valid.error());
  }
  for (const std::string& key : config.api_keys) {
    if (key.empty() || key.find_first_of(" \t\r\n") != std::string::npos) {
      return report({ErrorCode::kInvalidArgument,
                     "api_keys: a key must not be empty and must not contain blanks"});
    }
  }
  log::info("settings", {{"values", description}});

  const SystemClock clock;
  net::IoRuntime io(static_cast<int>(config.io_threads));
  const auto memory = make_memory(config.models.engine);
  if (!memory.ok()) return report(memory.error());
  provider::ModelManager models(make_loader(config.models, *memory), clock);
  if (Status added = add_models(models, config.models, *memory); !added.ok())
    return report(added.error());
  Signals signals(io);  // only now: until here Ctrl-C ends the program at once
  provider::LocalBackend backend(models, clock, {.api_keys = config.api_keys});
  serving::SurfaceOptions surface_options;
  surface_options.session.max_body_bytes = options->max_body_bytes;
  surface_options.session.keepalive_after = std::chrono::seconds(config.keepalive_after_s);
  surface_options.allowed_origins = config.allowed_origins;
  surface_options.metrics = [&models] { return provider::render_metrics(models); };
  serving::HttpSurface surface(backend, clock, serving::make_net_lanes(io),
                               std::move(surface_options));
  net::HttpServer server(io, *options, surface.handler(), serving::protocol_error_reply);
  server.set_head_check(
      [&surface](const net::HttpRequest& head) { return surface.check_head(head); });
  if (Status started = server.start(); !started.ok()) return report(started.error());
  const bool tls = options->tls.has_value();
  log::info("listening", {{"url", std::string(tls ? "https://" : "http://") + options->host + ":" +
                                      std::to_string(server.port()) + "/v1"},
                          {"models", models.list().size()},
                          {"keys", config.api_keys.size()}});

  while (signals.wait() == Signals::Asked::kReload) {
    const Status reloaded = server.reload_certificate();
    if (reloaded.ok()) {
      log::info("certificate_reloaded", {});
    } else {
      log::error("certificate_reload_failed", {{"reason", reloaded.error().message}});
    }
  }
  server.stop_accepting();
  const bool all_ended = signals.wait_until([&] { return surface.num_running() == 0; },
                                            std::chrono::seconds(config.drain_timeout_s));
  surface.stop();
  server.flush(kFlushTime);
  log::info("stopped", {{"all_requests_ended", all_ended}});
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("serve", "Serve models to OpenAI clients on this machine");
  auto config = std::make_shared<ServeConfig>();
  auto declared = std::make_shared<settings::Settings>();
  declare(*declared, *config);
  declared->bind_flags(*command);
  command->callback([config, declared, &exit_code] {
    if (Status loaded = declared->load(settings::process_environment()); !loaded.ok()) {
      exit_code = report(loaded.error());
      return;
    }
    exit_code = serve(*config, declared->describe());
  });
}

}  // namespace flotilla::apps
