#include "flotilla/coordinator/money/ledger.h"

#include "flotilla/base/check.h"

namespace flotilla::coordinator {

std::vector<LedgerEntry> merged(const std::vector<LedgerEntry>& entries) {
  std::vector<LedgerEntry> out;
  for (const LedgerEntry& entry : entries) {
    LedgerEntry* same = nullptr;
    for (LedgerEntry& other : out) {
      if (other.account == entry.account) same = &other;
    }
    if (same != nullptr) {
      same->amount += entry.amount;
    } else {
      out.push_back(entry);
    }
  }
  std::erase_if(out, [](const LedgerEntry& entry) { return entry.amount == 0; });
  return out;
}

Result<std::int64_t> next_ledger_id(store::Database& database) {
  FLOTILLA_TRY(const auto last, database.query("SELECT MAX(id) FROM ledger_transactions"));
  return last.at(0).integer(0) + 1;
}

Status post(store::Database& database, std::int64_t id, const LedgerTransaction& transaction) {
  Micro sum = 0;
  for (const LedgerEntry& entry : transaction.entries) sum += entry.amount;
  FLOTILLA_CHECK(sum == 0, "a ledger transaction sums to zero");
  auto made = database.execute(
      "INSERT INTO ledger_transactions (id, kind, time, reference, note) "
      "VALUES (:p1, :p2, :p3, :p4, :p5)",
      {id, std::string(transaction.kind), transaction.time, transaction.reference,
       transaction.note});
  if (!made.ok()) return std::move(made).error();
  for (const LedgerEntry& entry : transaction.entries) {
    auto entered = database.execute(
        "INSERT INTO ledger_entries (transaction_id, account, amount) VALUES (:p1, :p2, :p3)",
        {id, static_cast<std::int64_t>(entry.account.value), entry.amount});
    if (!entered.ok()) return std::move(entered).error();
  }
  return ok_status();
}

}  // namespace flotilla::coordinator
