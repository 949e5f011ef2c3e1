// Usage for export: sums by day, model, key and account.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/coordinator/money/job_money.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

struct UsageQuestion {
  std::optional<AccountId> account;  // nullopt: all
  std::int64_t first_day = 0, last_day = 0;
  bool by_day = false, by_model = false, by_key = false, by_account = false;
};

struct UsageLine {
  // Empty where it was not asked for.
  std::string day, model, key_name, account;
  std::optional<std::int64_t> key;
  UsageCounts counts;
};

// "2026-11-30" to days since 1970-01-01, and back.
Result<std::int64_t> parse_day(std::string_view text);
std::string format_day(std::int64_t day);

// From the query of a URL: from, to, group_by (a list of day, model, key, account). Without them
// the last 30 days up to `today`, by day and model. Only with `all_accounts` the account can be
// asked for.
Result<UsageQuestion> parse_usage_question(std::string_view query, std::int64_t today,
                                           bool all_accounts);

// At most 10,000 lines; more are kTooLarge.
Result<std::vector<UsageLine>> report_usage(store::Database& database,
                                            const UsageQuestion& question);
std::string usage_as_json(const UsageQuestion& question, const std::vector<UsageLine>& lines);
std::string usage_as_csv(const UsageQuestion& question, const std::vector<UsageLine>& lines);

}  // namespace flotilla::coordinator
