#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "apps/flotilla_coordinator/commands.h"
#include "apps/flotilla_coordinator/database_command.h"
#include "flotilla/base/clock.h"
#include "flotilla/coordinator/money/audit.h"

namespace flotilla::apps {
namespace {

Status audit(const DatabaseTarget& target) {
  FLOTILLA_TRY(store::Database database, target.open_existing());
  FLOTILLA_TRY(const auto report, coordinator::audit(database, SystemClock().unix_seconds()));
  for (const std::string& fault : report.faults) std::printf("WRONG: %s\n", fault.c_str());
  if (!target.quiet) {
    std::printf("%lld accounts, %lld transactions, %lld jobs (%lld open): %s\n",
                static_cast<long long>(report.num_accounts),
                static_cast<long long>(report.num_transactions),
                static_cast<long long>(report.num_jobs), static_cast<long long>(report.num_open),
                report.faults.empty() ? "the books are right" : "the books are WRONG");
  }
  if (report.faults.empty()) return ok_status();
  return Error{ErrorCode::kInternal,
               std::to_string(report.faults.size()) + " sums of the ledger are wrong"};
}

}  // namespace

void add_ledger(CLI::App& app, int& exit_code) {
  CLI::App* ledger = app.add_subcommand("ledger", "The double-entry ledger");
  ledger->require_subcommand(1);
  auto target = std::make_shared<DatabaseTarget>();
  add_database_command(*ledger, "audit", "Check every sum; prints what is wrong and exits with 1",
                       *target, exit_code, [target] { return audit(*target); });
}

}  // namespace flotilla::apps
