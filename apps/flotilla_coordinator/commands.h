// One function per subcommand: adds it to `app` with a callback that sets the exit code.
#pragma once

#include <string>

#include "flotilla/base/result.h"

namespace CLI {
class App;
}

namespace flotilla::apps {

void add_serve(CLI::App& app, int& exit_code);
void add_keys(CLI::App& app, int& exit_code);
void add_nodes(CLI::App& app, int& exit_code);
void add_accounts(CLI::App& app, int& exit_code);
void add_prices(CLI::App& app, int& exit_code);
void add_ledger(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_loads(CLI::App& app, int& exit_code);
void add_models(CLI::App& app, int& exit_code);

// "flotilla-coordinator: MESSAGE" on standard error; returns 1.
int complain(const Error& error);
// "2026-11-30 12:00" (UTC)
std::string date_text(std::int64_t unix_seconds);
// "2026-11-30" or "2026-11-30T12:00" (UTC), or "+90d", "+12h" from `now`; unix seconds.
Result<std::int64_t> parse_time(const std::string& text, std::int64_t now);
// Two columns at least: pads `text` to `width` characters.
std::string padded(const std::string& text, std::size_t width);

}  // namespace flotilla::apps
