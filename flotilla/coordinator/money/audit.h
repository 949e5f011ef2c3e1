// Whether the books are right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/store/database.h"

namespace flotilla::coordinator {

struct AuditReport {
  std::vector<std::string> faults;  // one sentence each; empty: everything is right
  std::int64_t num_accounts = 0, num_transactions = 0, num_jobs = 0, num_open = 0;
};

// At one moment, without holding up a server: every transaction sums to zero and every entry
// belongs to one; balances are the sums of their entries, sum to zero and are not negative; what is
// reserved is the sum of the open jobs, by account and by key; no job is open without a server that
// works on it (a server shows a sign of life every few seconds, and jobs of its predecessor end
// within its recovery time); what a job was charged is what the ledger moved for it, once.
Result<AuditReport> audit(store::Database& database, std::int64_t now);

}  // namespace flotilla::coordinator
