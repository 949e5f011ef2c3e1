#include "flotilla/coordinator/money/prices.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "apps/flotilla_coordinator/database_command.h"
#include "flotilla/base/clock.h"

namespace flotilla::apps {
namespace {

struct Arguments {
  DatabaseTarget target;
  std::string model, input, cached_input, output, since;
};

Status set(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open());
  const std::int64_t now = SystemClock().unix_seconds();
  coordinator::Price price;
  FLOTILLA_TRY(price.input, coordinator::parse_amount(arguments.input));
  FLOTILLA_TRY(price.output, coordinator::parse_amount(arguments.output));
  price.cached_input = price.input;
  if (!arguments.cached_input.empty()) {
    FLOTILLA_TRY(price.cached_input, coordinator::parse_amount(arguments.cached_input));
  }
  std::int64_t since = now;
  if (!arguments.since.empty()) {
    FLOTILLA_TRY(since, parse_time(arguments.since, now));
  }
  FLOTILLA_TRY(const auto row,
               coordinator::set_price(database, arguments.model, price, since, now));
  if (!arguments.target.quiet) {
    std::printf("Price %lld holds from %s (UTC).\n", static_cast<long long>(row.id),
                date_text(row.since).c_str());
  }
  return ok_status();
}

Status list(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, arguments.target.open_existing());
  FLOTILLA_TRY(const auto rows, coordinator::list_prices(database));
  const std::vector<std::size_t> columns{32, 12, 12, 12};
  if (!arguments.target.quiet)
    print_row(columns, {"MODEL", "INPUT", "CACHED", "OUTPUT", "SINCE (UTC)"});
  for (const auto& row : rows) {
    print_row(columns, {row.model, coordinator::format_amount(row.price.input),
                        coordinator::format_amount(row.price.cached_input),
                        coordinator::format_amount(row.price.output), date_text(row.since)});
  }
  return ok_status();
}

}  // namespace

void add_prices(CLI::App& app, int& exit_code) {
  CLI::App* prices = app.add_subcommand("prices", "What models cost");
  prices->require_subcommand(1);
  auto arguments = std::make_shared<Arguments>();
  const auto add = database_commands(*prices, arguments, exit_code);
  CLI::App* setting = add("set", "Set a price; jobs that were reserved before keep theirs", set);
  setting->add_option("model", arguments->model, "the model, or '*' for all that have none")
      ->required();
  setting->add_option("--input", arguments->input, "per million tokens, like 0.25")->required();
  setting->add_option("--cached-input", arguments->cached_input,
                      "per million tokens that a cache had; as input unless set");
  setting->add_option("--output", arguments->output, "per million tokens")->required();
  setting->add_option("--since", arguments->since, "when it begins to hold: 2026-12-01, +1d; now");
  add("list", "List prices and their history", list);
}

}  // namespace flotilla::apps
