// `flotilla engine-worker`: the process that runs a model for another one. Started by flotilla
// itself.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "apps/flotilla/commands.h"
#include "apps/flotilla/listen_address.h"
#include "flotilla/worker/worker_process.h"

namespace flotilla::apps {
namespace {

struct WorkerOptions {
  std::string log_level = "info", log_format = "text";
};

int engine_worker(const WorkerOptions& options) {
  if (const Status set = configure_log(options.log_level, options.log_format); !set.ok()) {
    std::fprintf(stderr, "flotilla engine-worker: %s\n", set.error().message.c_str());
    return 2;
  }
  return worker::worker_process();
}

}  // namespace

void add_engine_worker(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<WorkerOptions>();
  CLI::App* command = app.add_subcommand("engine-worker", "run a model for another process");
  command->group("");  // not for people
  command->add_option("--log-level", options->log_level);
  command->add_option("--log-format", options->log_format);
  command->callback([options, &exit_code] { exit_code = engine_worker(*options); });
}

}  // namespace flotilla::apps
