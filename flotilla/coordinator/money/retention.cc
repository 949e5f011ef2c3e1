#include "flotilla/coordinator/money/retention.h"

#include <algorithm>

#include "flotilla/coordinator/money/job_money.h"
#include "flotilla/coordinator/money/ledger.h"
#include "flotilla/coordinator/money/server_state.h"

namespace flotilla::coordinator {
namespace {

constexpr std::int64_t kStep = 2'000;
constexpr std::int64_t kDay = 86'400;

// The oldest charges before `cutoff` become one transaction with their sums.
Result<bool> carry_charges(store::Database& database, std::int64_t cutoff, std::int64_t now) {
  // By id, which has an index; times grow with it.
  FLOTILLA_TRY(auto old, database.query("SELECT id, time FROM ledger_transactions WHERE kind = "
                                        "'job' ORDER BY id LIMIT :p1",
                                        {kStep}));
  const auto young = std::find_if(old.begin(), old.end(),
                                  [&](const store::Row& row) { return row.integer(1) >= cutoff; });
  old.erase(young, old.end());
  // One alone would only change its name.
  if (old.size() < 2) return false;
  const std::int64_t first = old.front().integer(0), last = old.back().integer(0);
  LedgerTransaction carried{"carried", now,
                            "carried:" + std::to_string(first) + "-" + std::to_string(last)};
  FLOTILLA_TRY(const auto sums,
               database.query("SELECT e.account, CAST(SUM(e.amount) AS BIGINT) "
                              "FROM ledger_entries e JOIN ledger_transactions t "
                              "ON t.id = e.transaction_id WHERE t.kind = 'job' AND "
                              "t.id >= :p1 AND t.id <= :p2 GROUP BY e.account",
                              {first, last}));
  for (const store::Row& row : sums) {
    carried.entries.push_back(
        {AccountId{static_cast<std::uint64_t>(row.integer(0))}, row.integer(1)});
  }
  carried.entries = merged(carried.entries);
  for (const std::string_view sql :
       {"DELETE FROM ledger_entries WHERE transaction_id IN (SELECT id FROM ledger_transactions "
        "WHERE kind = 'job' AND id >= :p1 AND id <= :p2)",
        "DELETE FROM ledger_transactions WHERE kind = 'job' AND id >= :p1 AND id <= :p2"}) {
    auto gone = database.execute(sql, {first, last});
    if (!gone.ok()) return std::move(gone).error();
  }
  FLOTILLA_TRY_STATUS(write_server_state(database, "carried_before", old.back().integer(1) + 1));
  if (!carried.entries.empty()) {
    FLOTILLA_TRY(const std::int64_t id, next_ledger_id(database));
    FLOTILLA_TRY_STATUS(post(database, id, carried));
  }
  return old.size() == static_cast<std::size_t>(kStep);
}

Result<bool> forget_jobs(store::Database& database, std::int64_t cutoff) {
  auto gone = database.execute(
      "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state <> 0 AND ended < :p1 "
      "LIMIT :p2)",
      {cutoff, kStep});
  if (!gone.ok()) return std::move(gone).error();
  return *gone == kStep;
}

}  // namespace

Result<bool> retire_some(store::Database& database, const Retention& retention, std::int64_t now) {
  bool more = false;
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    if (retention.jobs_days > 0) {
      FLOTILLA_TRY(more, forget_jobs(database, now - retention.jobs_days * kDay));
    }
    if (retention.ledger_days > 0) {
      FLOTILLA_TRY(const bool left,
                   carry_charges(database, now - retention.ledger_days * kDay, now));
      more = more || left;
    }
    if (retention.usage_days > 0) {
      auto gone = database.execute("DELETE FROM usage_days WHERE day < :p1",
                                   {day_of(now) - retention.usage_days});
      if (!gone.ok()) return std::move(gone).error();
    }
    return ok_status();
  }));
  return more;
}

}  // namespace flotilla::coordinator
