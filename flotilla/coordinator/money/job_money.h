// Jobs and their money inside one transaction of the database: reservation and settlement.
//
// A reservation holds the worst case of a job before it starts; its row is the job's. A settlement
// ends it exactly once: what is due moves in the ledger, the rest of what was held is free again,
// the usage is counted. Many of both share a transaction: accounts and keys are read once, under
// the write lock, and written once at its end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/coordinator/money/accounts.h"
#include "flotilla/coordinator/money/amount.h"
#include "flotilla/coordinator/money/ledger.h"
#include "flotilla/coordinator/money/prices.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

struct ReserveOrder {
  JobId job;
  AccountId account;
  ApiKeyId key;
  std::string model;
  bool streamed = false;
  std::int64_t prompt_tokens = 0;      // that the job pays for
  std::int64_t max_output_tokens = 0;  // the most that it may be given
  std::vector<ProviderId> nodes = {};  // that have given of it, and the one that it goes to now
};

// What was held, and on which terms. `price` 0: nothing, the model is free now.
struct Reservation {
  std::int64_t price = 0;
  Micro amount = 0;
  bool held() const { return price != 0; }
};

// Which account's nodes delivered how many tokens.
struct ServedShare {
  AccountId owner = kPlatformAccount;
  std::uint64_t tokens = 0;
};

struct SettleOrder {
  JobId job;
  AccountId account;
  ApiKeyId key;
  std::string model;
  Reservation reservation;
  // Nothing was delivered: everything goes back, and no usage is counted.
  bool refund = false;
  TokenCounts tokens = {};
  std::vector<ServedShare> served = {};
  std::string outcome = {};  // "ok", "cancelled", or an error code
};

struct UsageKey {
  std::int64_t day = 0;  // since 1970, UTC
  std::uint64_t account = 0, api_key = 0;
  std::string model;
  auto operator<=>(const UsageKey&) const = default;
};
struct UsageCounts {
  std::int64_t jobs = 0, prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  Micro charged = 0;
  void add(const UsageCounts& other);
};

std::int64_t day_of(std::int64_t unix_seconds);

// Adds to what the days have. Inside a transaction.
Status add_usage(store::Database& database, const std::map<UsageKey, UsageCounts>& usage);

// How a charge is divided: entries that sum to zero. Nodes are paid by the tokens they delivered,
// less the fee; the operator gets the fee and what rounding leaves.
std::vector<LedgerEntry> divide_charge(AccountId payer, Micro charge, std::int64_t fee_basis_points,
                                       const std::vector<ServedShare>& served);
// Free: every token came from the payer's own nodes.
bool is_own_use(AccountId payer, const std::vector<ServedShare>& served);

class JobMoney {
 public:
  // Everything must outlive it; `now` in unix seconds.
  JobMoney(store::Database& database, const PriceBook& prices, std::int64_t run,
           std::int64_t fee_basis_points, std::int64_t now);

  // A status that is not ok is the database's and spoils the transaction; `refusal` is the
  // customer's (kInsufficientFunds with the numbers) and spoils nothing.
  Status reserve(const ReserveOrder& order, Reservation& made, std::optional<Error>& refusal);
  // A job that is not open any more is left alone.
  Status settle(const SettleOrder& order);
  // Last.
  Status write_back();

 private:
  struct AccountState {
    Micro balance = 0, reserved = 0, balance_before = 0, reserved_before = 0;
  };
  struct KeyState {
    bool exists = false;
    std::optional<Micro> limit;
    std::optional<std::int64_t> expires;
    bool revoked = false;
    Micro spent = 0, reserved = 0, spent_before = 0, reserved_before = 0;
  };
  Result<AccountState*> account(AccountId id);
  Result<KeyState*> key(ApiKeyId id);
  Status move(const SettleOrder& order, Micro charge);

  store::Database& database_;
  const PriceBook& prices_;
  const std::int64_t run_;
  const std::int64_t fee_basis_points_;
  const std::int64_t now_;
  std::map<AccountId, AccountState> accounts_;
  std::map<ApiKeyId, KeyState> keys_;
  std::map<UsageKey, UsageCounts> usage_;
  std::int64_t next_ledger_id_ = 0;  // 0: not read yet
};

}  // namespace flotilla::coordinator
