// The double-entry ledger: every transaction moves money between accounts and sums to zero. Rows
// are only added (retention.h carries old ones forward).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/coordinator/money/amount.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

struct LedgerEntry {
  AccountId account;
  Micro amount = 0;
};

struct LedgerTransaction {
  std::string_view kind;  // "deposit", "withdrawal", "job", "carried"
  std::int64_t time = 0;
  std::string reference;  // unique: what was booked once is not booked again
  std::string note = {};
  std::vector<LedgerEntry> entries = {};  // one per account
};

// Merges entries of one account and drops those of zero.
std::vector<LedgerEntry> merged(const std::vector<LedgerEntry>& entries);

// Next free number. Inside a transaction of the database.
Result<std::int64_t> next_ledger_id(store::Database& database);
// Writes it; balances are the caller's to change, in the same transaction of the database. Our
// fault if it does not sum to zero.
Status post(store::Database& database, std::int64_t id, const LedgerTransaction& transaction);

}  // namespace flotilla::coordinator
