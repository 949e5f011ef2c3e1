// flotilla: chat in the terminal, a local server, a node of the fleet, and tools for models and
// machines.
#include <CLI/CLI.hpp>
#include <csignal>

#include "apps/flotilla/commands.h"
#include "flotilla/settings/command_line.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE,
              SIG_IGN);  // a closed pipe or socket is an error of one write, not of the process
  CLI::App app(
      "flotilla: run language models in the terminal, as a local server, or as a node of a fleet");
  app.set_version_flag("--version", FLOTILLA_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  flotilla::apps::add_run(app, exit_code);
  flotilla::apps::add_serve(app, exit_code);
  flotilla::apps::add_provider(app, exit_code);
  flotilla::apps::add_models(app, exit_code);
  flotilla::apps::add_doctor(app, exit_code);
  flotilla::apps::add_bench(app, exit_code);
  flotilla::apps::add_engine_worker(app, exit_code);
  const auto parsed = flotilla::settings::parse_command_line(app, argc, argv);
  return parsed.done ? parsed.exit_code : exit_code;
}
