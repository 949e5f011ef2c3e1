// Accounts: who pays and who earns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/coordinator/money/amount.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

// Keys that were made without an account belong to this one.
inline constexpr AccountId kDefaultAccount{1};
// Where deposits come from and payouts go: minus the sum of all other balances.
inline constexpr AccountId kOutsideAccount{2};
// The operator's own: fees, and what nodes without an owner earn.
inline constexpr AccountId kPlatformAccount{3};

// Per minute; nullopt: no limit.
struct Limits {
  std::optional<std::int64_t> requests, input_tokens, output_tokens;
  bool operator==(const Limits&) const = default;
  bool none() const { return !requests && !input_tokens && !output_tokens; }
};
// At least 1 each.
Status check_limits(const Limits& limits);

struct Account {
  AccountId id;
  std::string name;
  std::int64_t created = 0;
  Micro balance = 0;
  Micro reserved = 0;  // by jobs that are under way
  Limits limits;
  Micro available() const { return balance - reserved; }
};

Result<Account> create_account(store::Database& database, const std::string& name,
                               std::int64_t now);
Result<std::vector<Account>> list_accounts(store::Database& database);
// kNotFound names it.
Result<Account> find_account(store::Database& database, const std::string& name);
Result<Account> find_account(store::Database& database, AccountId id);
Status set_account_limits(store::Database& database, const std::string& name, const Limits& limits);

// Money that comes in or goes out, booked once per `reference`: the same again returns the account
// and changes nothing; another amount or account under a used reference is kAlreadyExists. A
// withdrawal of more than is available is kInsufficientFunds.
enum class Transfer { kDeposit, kWithdrawal };
struct TransferOrder {
  Transfer kind = Transfer::kDeposit;
  std::string account;
  Micro amount = 0;       // above 0
  std::string reference;  // the caller's own, up to 128 bytes
  std::string note = {};
};
struct TransferResult {
  Account account;
  bool repeated = false;
};
Result<TransferResult> transfer(store::Database& database, const TransferOrder& order,
                                std::int64_t now);

// The account that a node earns for, or nullopt for the operator's.
Status set_node_owner(store::Database& database, const std::string& node,
                      const std::optional<std::string>& account);

}  // namespace flotilla::coordinator
