#include "flotilla/coordinator/money/audit.h"

#include "flotilla/coordinator/money/accounts.h"
#include "flotilla/coordinator/money/server_state.h"

namespace flotilla::coordinator {
namespace {

constexpr std::int64_t kSignOfLifeSeconds = 60;
constexpr std::size_t kMaxListed = 20;  // of one kind

class Auditor {
 public:
  Auditor(store::Database& database, std::int64_t now) : database_(database), now_(now) {}

  Status run() {
    FLOTILLA_TRY(const ServerState state, read_server_state(database_));
    FLOTILLA_TRY_STATUS(check_transactions());
    FLOTILLA_TRY_STATUS(check_balances());
    FLOTILLA_TRY_STATUS(check_reserved());
    FLOTILLA_TRY_STATUS(check_open(state));
    FLOTILLA_TRY_STATUS(check_charges(state));
    FLOTILLA_TRY(report.num_accounts, count("SELECT COUNT(*) FROM accounts"));
    FLOTILLA_TRY(report.num_transactions, count("SELECT COUNT(*) FROM ledger_transactions"));
    FLOTILLA_TRY(report.num_jobs, count("SELECT COUNT(*) FROM jobs"));
    FLOTILLA_TRY(report.num_open, count("SELECT COUNT(*) FROM jobs WHERE state = 0"));
    return ok_status();
  }

  AuditReport report;

 private:
  using Describe = std::string (*)(const store::Row&);

  Result<std::int64_t> count(std::string_view sql) {
    FLOTILLA_TRY(const auto rows, database_.query(sql));
    return rows.at(0).integer(0);
  }
  // Every row that the query finds is a fault.
  Status none(std::string_view sql, Describe describe, std::vector<store::Value> parameters = {}) {
    FLOTILLA_TRY(const auto rows, database_.query(sql, std::move(parameters)));
    for (std::size_t i = 0; i < rows.size() && i < kMaxListed; ++i) {
      report.faults.push_back(describe(rows[i]));
    }
    if (rows.size() > kMaxListed) {
      report.faults.push_back("... and " + std::to_string(rows.size() - kMaxListed) +
                              " more of this kind");
    }
    return ok_status();
  }

  Status check_transactions() {
    FLOTILLA_TRY_STATUS(
        none("SELECT transaction_id, CAST(SUM(amount) AS BIGINT) FROM ledger_entries "
             "GROUP BY transaction_id HAVING SUM(amount) <> 0 ORDER BY transaction_id",
             [](const store::Row& row) {
               return "transaction " + row.text(0) +
                      " does not sum to zero: " + format_amount(row.integer(1)) + " too much";
             }));
    FLOTILLA_TRY_STATUS(
        none("SELECT e.transaction_id, e.account, e.amount FROM ledger_entries e "
             "LEFT JOIN ledger_transactions t ON t.id = e.transaction_id WHERE t.id IS NULL",
             [](const store::Row& row) {
               return "an entry of " + format_amount(row.integer(2)) + " for account " +
                      row.text(1) + " belongs to transaction " + row.text(0) + ", which is missing";
             }));
    FLOTILLA_TRY_STATUS(
        none("SELECT t.id, t.reference FROM ledger_transactions t "
             "LEFT JOIN ledger_entries e ON e.transaction_id = t.id WHERE e.transaction_id IS NULL",
             [](const store::Row& row) {
               return "transaction " + row.text(0) + " (" + row.text(1) + ") has no entries";
             }));
    return none(
        "SELECT DISTINCT e.account FROM ledger_entries e "
        "LEFT JOIN accounts a ON a.id = e.account WHERE a.id IS NULL",
        [](const store::Row& row) {
          return "the ledger names account " + row.text(0) + ", which does not exist";
        });
  }

  Status check_balances() {
    FLOTILLA_TRY_STATUS(none(
        "SELECT a.name, a.balance, CAST(COALESCE(SUM(e.amount), 0) AS BIGINT) FROM accounts a "
        "LEFT JOIN ledger_entries e ON e.account = a.id GROUP BY a.id, a.name, a.balance "
        "HAVING a.balance <> COALESCE(SUM(e.amount), 0) ORDER BY a.id",
        [](const store::Row& row) {
          return "account '" + row.text(0) + "' has a balance of " + format_amount(row.integer(1)) +
                 ", its ledger entries sum to " + format_amount(row.integer(2));
        }));
    return none(
        "SELECT name, balance, reserved FROM accounts WHERE id <> :p1 AND "
        "(balance < 0 OR reserved < 0 OR balance < reserved) ORDER BY id",
        [](const store::Row& row) {
          return "account '" + row.text(0) + "' owes more than it has: balance " +
                 format_amount(row.integer(1)) + ", reserved " + format_amount(row.integer(2));
        },
        {static_cast<std::int64_t>(kOutsideAccount.value)});
  }

  Status check_reserved() {
    FLOTILLA_TRY_STATUS(none(
        "SELECT a.name, a.reserved, CAST(COALESCE(SUM(j.reserved), 0) AS BIGINT) FROM accounts a "
        "LEFT JOIN jobs j ON j.account = a.id AND j.state = 0 GROUP BY a.id, a.name, a.reserved "
        "HAVING a.reserved <> COALESCE(SUM(j.reserved), 0) ORDER BY a.id",
        [](const store::Row& row) {
          return "account '" + row.text(0) + "' has " + format_amount(row.integer(1)) +
                 " reserved, its open jobs hold " + format_amount(row.integer(2));
        }));
    return none(
        "SELECT k.id, k.reserved, CAST(COALESCE(SUM(j.reserved), 0) AS BIGINT) FROM api_keys k "
        "LEFT JOIN jobs j ON j.api_key = k.id AND j.state = 0 GROUP BY k.id, k.reserved "
        "HAVING k.reserved <> COALESCE(SUM(j.reserved), 0) ORDER BY k.id",
        [](const store::Row& row) {
          return "key " + row.text(0) + " has " + format_amount(row.integer(1)) +
                 " reserved, its open jobs hold " + format_amount(row.integer(2));
        });
  }

  Status check_open(const ServerState& state) {
    const bool is_alive = now_ - state.alive <= kSignOfLifeSeconds;
    const auto describe = [](const store::Row& row) {
      return "job " + row.text(0) + " is open since " + std::to_string(row.integer(1)) +
             " (unix time) and holds " + format_amount(row.integer(2)) +
             ", and no server works on it; 'serve' settles or refunds it";
    };
    constexpr std::string_view kOpenJobs =
        "SELECT id, created, reserved FROM jobs WHERE state = 0 ";
    if (!is_alive) return none(std::string(kOpenJobs) + "ORDER BY created", describe);
    if (now_ - state.run_began <= state.recovery_s + kSignOfLifeSeconds) return ok_status();
    return none(std::string(kOpenJobs) + "AND run <> :p1 ORDER BY created", describe, {state.run});
  }

  Status check_charges(const ServerState& state) {
    FLOTILLA_TRY_STATUS(none(
        "SELECT j.id, j.charged, CAST(COALESCE(SUM(e.amount), 0) AS BIGINT) FROM jobs j "
        "LEFT JOIN ledger_transactions t ON t.reference = 'job:' || j.id "
        "LEFT JOIN ledger_entries e ON e.transaction_id = t.id AND e.amount < 0 "
        "WHERE j.state = 1 AND j.ended >= :p1 GROUP BY j.id, j.charged "
        // The payer may be paid for a part itself, which the ledger shows as less.
        "HAVING j.charged < -COALESCE(SUM(e.amount), 0) OR (j.charged > 0 AND COUNT(t.id) = 0)",
        [](const store::Row& row) {
          return "job " + row.text(0) + " was charged " + format_amount(row.integer(1)) +
                 ", the ledger moved " + format_amount(-row.integer(2));
        },
        {state.carried_before}));
    return none(
        "SELECT id, charged, reserved FROM jobs WHERE charged < 0 OR charged > reserved OR "
        "(state <> 1 AND charged <> 0)",
        [](const store::Row& row) {
          return "job " + row.text(0) + " was charged " + format_amount(row.integer(1)) +
                 " of its reservation of " + format_amount(row.integer(2));
        });
  }

  store::Database& database_;
  const std::int64_t now_;
};

}  // namespace

Result<AuditReport> audit(store::Database& database, std::int64_t now) {
  Auditor auditor(database, now);
  FLOTILLA_TRY_STATUS(database.snapshot([&] { return auditor.run(); }));
  return std::move(auditor.report);
}

}  // namespace flotilla::coordinator
