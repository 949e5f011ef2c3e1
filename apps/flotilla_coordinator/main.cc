// flotilla-coordinator: the public address of a fleet.
#include <CLI/CLI.hpp>
#include <charconv>
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

Result<std::int64_t> parse_time(const std::string& text, std::int64_t now) {
  const Error bad{
      ErrorCode::kInvalidArgument,
      "'" + text + "' is no time; write 2026-11-30, 2026-11-30T12:00 (UTC), +90d or +12h"};
  std::int64_t number = 0;
  if (text.starts_with('+') && (text.ends_with('d') || text.ends_with('h'))) {
    const char* last = text.data() + text.size() - 1;
    const auto parsed = std::from_chars(text.data() + 1, last, number);
    if (parsed.ec != std::errc{} || parsed.ptr != last || number > 100'000) return bad;
    return now + number * (text.ends_with('d') ? 86'400 : 3'600);
  }
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%d", &parts);
  if (end != nullptr && *end == 'T') end = ::strptime(end, "T%H:%M", &parts);
  if (end == nullptr || *end != '\0') return bad;
  return std::int64_t{::timegm(&parts)};
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
  flotilla::apps::add_accounts(app, exit_code);
  flotilla::apps::add_prices(app, exit_code);
  flotilla::apps::add_ledger(app, exit_code);
  flotilla::apps::add_explain(app, exit_code);
  flotilla::apps::add_loads(app, exit_code);
  flotilla::apps::add_models(app, exit_code);
  const auto parsed = flotilla::settings::parse_command_line(app, argc, argv);
  return parsed.done ? parsed.exit_code : exit_code;
}
