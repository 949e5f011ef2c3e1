#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "flotilla/base/clock.h"
#include "flotilla/coordinator/config.h"
#include "flotilla/coordinator/money/audit.h"
#include "flotilla/coordinator/schema.h"

namespace flotilla::apps {
namespace {

Result<bool> audit(const std::string& path, bool quiet) {
  FLOTILLA_TRY(store::Database database, coordinator::open_database(path, {.create = false}));
  FLOTILLA_TRY(const auto report, coordinator::audit(database, SystemClock().unix_seconds()));
  for (const std::string& fault : report.faults) std::printf("WRONG: %s\n", fault.c_str());
  if (!quiet) {
    std::printf("%lld accounts, %lld transactions, %lld jobs (%lld open): %s\n",
                static_cast<long long>(report.num_accounts),
                static_cast<long long>(report.num_transactions),
                static_cast<long long>(report.num_jobs), static_cast<long long>(report.num_open),
                report.faults.empty() ? "the books are right" : "the books are WRONG");
  }
  return report.faults.empty();
}

}  // namespace

void add_ledger(CLI::App& app, int& exit_code) {
  CLI::App* ledger = app.add_subcommand("ledger", "The double-entry ledger");
  ledger->require_subcommand(1);
  auto path = std::make_shared<std::string>(coordinator::CoordinatorConfig().database);
  auto quiet = std::make_shared<bool>(false);
  CLI::App* command =
      ledger->add_subcommand("audit", "Check every sum; prints what is wrong and exits with 1");
  command->add_option("--database", *path, "the coordinator's: a SQLite file or postgresql://...")
      ->envname("FLOTILLA_DATABASE")
      ->capture_default_str();
  command->add_flag("-q,--quiet", *quiet, "print only what is wrong");
  command->callback([path, quiet, &exit_code] {
    const auto right = audit(*path, *quiet);
    if (!right.ok()) {
      exit_code = complain(right.error());
    } else if (!*right) {
      exit_code = 1;
    }
  });
}

}  // namespace flotilla::apps
