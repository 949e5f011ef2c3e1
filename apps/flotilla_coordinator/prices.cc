#include "flotilla/coordinator/money/prices.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "flotilla/base/clock.h"
#include "flotilla/coordinator/config.h"
#include "flotilla/coordinator/schema.h"

namespace flotilla::apps {
namespace {

struct Arguments {
  std::string database = coordinator::CoordinatorConfig().database;
  std::string model, input, cached_input, output, since;
  bool quiet = false;
};

Status set(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database, coordinator::open_database(arguments.database));
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
  if (!arguments.quiet) {
    std::printf("Price %lld holds from %s (UTC).\n", static_cast<long long>(row.id),
                date_text(row.since).c_str());
  }
  return ok_status();
}

Status list(const Arguments& arguments) {
  FLOTILLA_TRY(store::Database database,
               coordinator::open_database(arguments.database, {.create = false}));
  FLOTILLA_TRY(const auto rows, coordinator::list_prices(database));
  if (!arguments.quiet) {
    std::printf("%s%s%s%s%s\n", padded("MODEL", 32).c_str(), padded("INPUT", 12).c_str(),
                padded("CACHED", 12).c_str(), padded("OUTPUT", 12).c_str(), "SINCE (UTC)");
  }
  for (const auto& row : rows) {
    std::printf("%s%s%s%s%s\n", padded(row.model + " ", 32).c_str(),
                padded(coordinator::format_amount(row.price.input) + " ", 12).c_str(),
                padded(coordinator::format_amount(row.price.cached_input) + " ", 12).c_str(),
                padded(coordinator::format_amount(row.price.output) + " ", 12).c_str(),
                date_text(row.since).c_str());
  }
  return ok_status();
}

}  // namespace

void add_prices(CLI::App& app, int& exit_code) {
  CLI::App* prices = app.add_subcommand("prices", "What models cost");
  prices->require_subcommand(1);
  auto arguments = std::make_shared<Arguments>();
  const auto add = [&](const char* name, const char* help, Status (*run)(const Arguments&)) {
    CLI::App* command = prices->add_subcommand(name, help);
    command
        ->add_option("--database", arguments->database,
                     "the coordinator's: a SQLite file or postgresql://...")
        ->envname("FLOTILLA_DATABASE")
        ->capture_default_str();
    command->add_flag("-q,--quiet", arguments->quiet, "print only what a script needs");
    command->callback([arguments, run, &exit_code] {
      if (Status status = run(*arguments); !status.ok()) exit_code = complain(status.error());
    });
    return command;
  };
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
