// Old rows go, a bounded number at a time.
#pragma once

#include <cstdint>

#include "flotilla/store/database.h"

namespace flotilla::coordinator {

// Days; 0: kept for ever.
struct Retention {
  std::int64_t jobs_days = 90;     // rows of single jobs
  std::int64_t ledger_days = 400;  // single charges; sums of them stay, deposits too
  std::int64_t usage_days = 0;     // usage by day
};

// One step, in a transaction of its own; true when there is more to do. Sums of the ledger stay
// what they were.
Result<bool> retire_some(store::Database& database, const Retention& retention, std::int64_t now);

}  // namespace flotilla::coordinator
