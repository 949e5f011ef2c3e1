// How fast the bank is: reservations arrive at a steady rate whatever it does, each is settled a
// little later. Prints how long reservations waited for their commit.
//   flotilla-money-bench DATABASE [--rate 3000] [--seconds 10] [--accounts 20]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <thread>

#include "flotilla/coordinator/auth/key_table.h"
#include "flotilla/coordinator/money/audit.h"
#include "flotilla/coordinator/money/bank.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {
namespace {

struct Options {
  std::string database;
  std::int64_t rate = 3'000, seconds = 10, accounts = 20;
};

struct Payer {
  AccountId account;
  ApiKeyId key;
};

Result<std::vector<Payer>> set_up(store::Database& database, const Options& options,
                                  std::int64_t now) {
  auto priced = set_price(database, "*", {300'000, 30'000, 1'200'000}, now, now);
  if (!priced.ok()) return std::move(priced).error();
  std::vector<Payer> payers;
  for (std::int64_t i = 0; i < options.accounts; ++i) {
    const std::string name = "bench-" + std::to_string(now) + "-" + std::to_string(i);
    FLOTILLA_TRY(const Account account, create_account(database, name, now));
    auto paid = transfer(database, {Transfer::kDeposit, name, kMaxAmount, name}, now);
    if (!paid.ok()) return std::move(paid).error();
    KeyOrder order{.name = name, .account = account.id, .expires = {}, .spend_limit = {}};
    FLOTILLA_TRY(const NewKey key, create_key(database, order, now));
    payers.push_back({account.id, key.record.id});
  }
  return payers;
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Status run(const Options& options) {
  const SystemClock clock;
  FLOTILLA_TRY(store::Database database, open_database(options.database));
  FLOTILLA_TRY(const std::vector<Payer> payers, set_up(database, options, clock.unix_seconds()));
  FLOTILLA_TRY(store::Database for_bank, open_database(options.database));
  FLOTILLA_TRY(auto bank, Bank::open(std::move(for_bank), clock, {}, nullptr));
  std::mutex mutex;
  std::vector<double> waits;
  std::int64_t num_refused = 0;
  const double cpu_before = cpu_seconds();
  const auto begin = clock.now();
  const std::int64_t total = options.rate * options.seconds;
  for (std::int64_t i = 0; i < total; ++i) {
    const auto due = begin + std::chrono::nanoseconds(i * 1'000'000'000 / options.rate);
    std::this_thread::sleep_until(due);
    const Payer& payer = payers[static_cast<std::size_t>(i) % payers.size()];
    ReserveOrder order{protocol::random_job_id(), payer.account, payer.key, "m", true, 500, 500};
    bank->reserve(order, [&, due, order](Result<Reservation> made) {
      const double wait = std::chrono::duration<double, std::milli>(clock.now() - due).count();
      if (made.ok()) {
        bank->settle({order.job,
                      order.account,
                      order.key,
                      order.model,
                      *made,
                      false,
                      {500, 100, 250},
                      {{kPlatformAccount, 250}},
                      "ok"});
      }
      std::lock_guard lock(mutex);
      waits.push_back(wait);
      if (!made.ok()) ++num_refused;
    });
  }
  bank->wait_until_answered();
  const double answered = std::chrono::duration<double>(clock.now() - begin).count();
  bank.reset();
  const double all = std::chrono::duration<double>(clock.now() - begin).count();
  const double cpu = cpu_seconds() - cpu_before;
  std::sort(waits.begin(), waits.end());
  const auto at = [&](double part) {
    return waits[static_cast<std::size_t>(part * static_cast<double>(waits.size() - 1))];
  };
  std::printf(
      "%lld reservations at %lld/s, %lld refused; answered after %.2f s, settled after "
      "%.2f s\nwait for the commit, ms: p50 %.2f, p90 %.2f, p99 %.2f, max %.2f; CPU per "
      "job %.0f us\n",
      static_cast<long long>(total), static_cast<long long>(options.rate),
      static_cast<long long>(num_refused), answered, all, at(0.5), at(0.9), at(0.99), at(1.0),
      cpu / static_cast<double>(total) * 1e6);
  FLOTILLA_TRY(const AuditReport report, audit(database, clock.unix_seconds()));
  for (const std::string& fault : report.faults) std::printf("WRONG: %s\n", fault.c_str());
  if (!report.faults.empty() || report.num_open > 0) {
    return Error{ErrorCode::kInternal, "the books are wrong afterwards"};
  }
  return ok_status();
}

}  // namespace
}  // namespace flotilla::coordinator

int main(int argc, char** argv) {
  flotilla::coordinator::Options options;
  CLI::App app("How fast reservations and settlements are written");
  app.add_option("database", options.database, "a SQLite file, or postgresql://...")->required();
  app.add_option("--rate", options.rate, "reservations per second")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--seconds", options.seconds, "how long")->check(CLI::Range(1, 3'600));
  app.add_option("--accounts", options.accounts, "how many pay")->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  if (const auto done = flotilla::coordinator::run(options); !done.ok()) {
    std::fprintf(stderr, "%s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
