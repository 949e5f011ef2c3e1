// flotilla-coordinator: the public address of a fleet.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "apps/flotilla_coordinator/commands.h"
#include "flotilla/settings/command_line.h"

namespace flotilla::apps {

int complain(const Error& error) {
  std::fprintf(stderr, "flotilla-coordinator: %s\n", error.message.c_str());
  return 1;
}

std::string date_text(std::int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char buffer[32];
  std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M", &parts);
  return buffer;
}

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text;
}

}  // namespace flotilla::apps

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app(
      "flotilla-coordinator: the public address of a fleet of machines that run language models");
  app.set_version_flag("--version", FLOTILLA_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  flotilla::apps::add_serve(app, exit_code);
  flotilla::apps::add_keys(app, exit_code);
  flotilla::apps::add_nodes(app, exit_code);
  const auto parsed = flotilla::settings::parse_command_line(app, argc, argv);
  return parsed.done ? parsed.exit_code : exit_code;
}
