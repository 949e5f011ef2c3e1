#include "flotilla/coordinator/money/accounts.h"

#include "flotilla/base/text.h"
#include "flotilla/coordinator/money/ledger.h"
#include "flotilla/coordinator/schema.h"

namespace flotilla::coordinator {
namespace {

constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxReferenceBytes = 128;
constexpr std::string_view kColumns =
    "SELECT id, name, created, balance, reserved, requests_per_minute, input_tokens_per_minute, "
    "output_tokens_per_minute FROM accounts ";

std::int64_t number(AccountId id) { return static_cast<std::int64_t>(id.value); }

std::optional<std::int64_t> optional_integer(const store::Row& row, std::size_t column) {
  if (row.is_null(column)) return std::nullopt;
  return row.integer(column);
}

store::Value to_value(const std::optional<std::int64_t>& value) {
  return value ? store::Value(*value) : store::Value();
}

Account read(const store::Row& row) {
  Account account;
  account.id.value = static_cast<std::uint64_t>(row.integer(0));
  account.name = row.text(1);
  account.created = row.integer(2);
  account.balance = row.integer(3);
  account.reserved = row.integer(4);
  account.limits = {optional_integer(row, 5), optional_integer(row, 6), optional_integer(row, 7)};
  return account;
}

// Names that people type; "@" marks the system's own.
Status check_name(const std::string& name) {
  bool good = !name.empty() && name.size() <= kMaxNameBytes;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    good = good && (plain || c == '-' || c == '_' || c == '.');
  }
  if (good) return ok_status();
  return Error{ErrorCode::kInvalidArgument,
               "an account's name has 1 to 64 letters, digits, '-', '_' and '.'", "name"};
}

Status add_to_balance(store::Database& database, AccountId account, Micro amount) {
  auto done = database.execute("UPDATE accounts SET balance = balance + :p1 WHERE id = :p2",
                               {amount, number(account)});
  if (!done.ok()) return std::move(done).error();
  return ok_status();
}

}  // namespace

Status check_limits(const Limits& limits) {
  for (const auto& limit : {limits.requests, limits.input_tokens, limits.output_tokens}) {
    if (limit && (*limit < 1 || *limit > kMaxAmount)) {
      return Error{ErrorCode::kInvalidArgument, "a limit per minute is at least 1", "limits"};
    }
  }
  return ok_status();
}

Result<Account> create_account(store::Database& database, const std::string& name,
                               std::int64_t now) {
  FLOTILLA_TRY_STATUS(check_name(name));
  Account account;
  account.name = name;
  account.created = now;
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    FLOTILLA_TRY(const auto present,
                 database.query("SELECT id FROM accounts WHERE name = :p1", {name}));
    if (!present.empty()) {
      return Error{ErrorCode::kAlreadyExists, "there is an account '" + name + "' already", "name"};
    }
    FLOTILLA_TRY(const auto last, database.query("SELECT MAX(id) FROM accounts"));
    account.id.value = static_cast<std::uint64_t>(last.at(0).integer(0)) + 1;
    auto made = database.execute("INSERT INTO accounts (id, name, created) VALUES (:p1, :p2, :p3)",
                                 {number(account.id), name, now});
    if (!made.ok()) return std::move(made).error();
    return note_change(database);
  }));
  return account;
}

Result<std::vector<Account>> list_accounts(store::Database& database) {
  FLOTILLA_TRY(const auto rows, database.query(std::string(kColumns) + "ORDER BY id"));
  std::vector<Account> accounts;
  for (const store::Row& row : rows) accounts.push_back(read(row));
  return accounts;
}

Result<Account> find_account(store::Database& database, const std::string& name) {
  FLOTILLA_TRY(const auto rows, database.query(std::string(kColumns) + "WHERE name = :p1", {name}));
  if (!rows.empty()) return read(rows[0]);
  return Error{ErrorCode::kNotFound, "there is no account '" + name + "'", "account"};
}

Result<Account> find_account(store::Database& database, AccountId id) {
  FLOTILLA_TRY(const auto rows,
               database.query(std::string(kColumns) + "WHERE id = :p1", {number(id)}));
  if (!rows.empty()) return read(rows[0]);
  return Error{ErrorCode::kNotFound, "there is no account " + std::to_string(id.value), "account"};
}

Status set_account_limits(store::Database& database, const std::string& name,
                          const Limits& limits) {
  FLOTILLA_TRY_STATUS(check_limits(limits));
  return database.transaction([&]() -> Status {
    FLOTILLA_TRY(const Account account, find_account(database, name));
    auto done = database.execute(
        "UPDATE accounts SET requests_per_minute = :p1, input_tokens_per_minute = :p2, "
        "output_tokens_per_minute = :p3 WHERE id = :p4",
        {to_value(limits.requests), to_value(limits.input_tokens), to_value(limits.output_tokens),
         number(account.id)});
    if (!done.ok()) return std::move(done).error();
    return note_change(database);
  });
}

Result<TransferResult> transfer(store::Database& database, const TransferOrder& order,
                                std::int64_t now) {
  if (order.amount <= 0 || order.amount > kMaxAmount) {
    return Error{ErrorCode::kInvalidArgument,
                 "an amount is above 0 and at most " + format_amount(kMaxAmount), "amount"};
  }
  if (order.reference.empty() || order.reference.size() > kMaxReferenceBytes ||
      !is_valid_utf8(order.reference) || order.note.size() > 1'024 || !is_valid_utf8(order.note)) {
    return Error{ErrorCode::kInvalidArgument,
                 "an idempotency key has 1 to 128 bytes, a note at most 1024", "idempotency_key"};
  }
  const bool comes_in = order.kind == Transfer::kDeposit;
  const std::string_view kind = comes_in ? "deposit" : "withdrawal";
  const Micro change = comes_in ? order.amount : -order.amount;
  const std::string reference = "transfer:" + order.reference;
  TransferResult result;
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    FLOTILLA_TRY(result.account, find_account(database, order.account));
    const AccountId id = result.account.id;
    if (id == kOutsideAccount) {
      return Error{ErrorCode::kInvalidArgument, "this account is the other side of every transfer",
                   "account"};
    }
    FLOTILLA_TRY(const auto before,
                 database.query("SELECT e.account, e.amount FROM ledger_transactions t "
                                "JOIN ledger_entries e ON e.transaction_id = t.id "
                                "WHERE t.reference = :p1 AND e.account <> :p2",
                                {reference, number(kOutsideAccount)}));
    if (!before.empty()) {
      result.repeated = true;
      if (before[0].integer(0) == number(id) && before[0].integer(1) == change) return ok_status();
      return Error{ErrorCode::kAlreadyExists, "this idempotency key was used for another transfer",
                   "idempotency_key"};
    }
    if (!comes_in && order.amount > result.account.available()) {
      return Error{ErrorCode::kInsufficientFunds,
                   "account '" + order.account + "' has " +
                       format_amount(result.account.available()) + " available (balance " +
                       format_amount(result.account.balance) + ", reserved " +
                       format_amount(result.account.reserved) + "), asked for " +
                       format_amount(order.amount),
                   "amount"};
    }
    const auto balance = add_checked(result.account.balance, change);
    if (!balance || *balance > 1'000 * kMaxAmount) {
      return Error{ErrorCode::kTooLarge, "the balance would be too large", "amount"};
    }
    FLOTILLA_TRY(const std::int64_t ledger_id, next_ledger_id(database));
    FLOTILLA_TRY_STATUS(
        post(database, ledger_id,
             {kind, now, reference, order.note, {{id, change}, {kOutsideAccount, -change}}}));
    FLOTILLA_TRY_STATUS(add_to_balance(database, id, change));
    FLOTILLA_TRY_STATUS(add_to_balance(database, kOutsideAccount, -change));
    result.account.balance = *balance;
    return ok_status();
  }));
  return result;
}

Status set_node_owner(store::Database& database, const std::string& node,
                      const std::optional<std::string>& account) {
  return database.transaction([&]() -> Status {
    store::Value owner;
    if (account) {
      FLOTILLA_TRY(const Account found, find_account(database, *account));
      if (found.name.starts_with('@')) {
        return Error{ErrorCode::kInvalidArgument,
                     "'" + found.name +
                         "' is an account of the system and owns no nodes; a node "
                         "without an owner earns for the operator",
                     "account"};
      }
      owner = number(found.id);
    }
    auto done = database.execute("UPDATE nodes SET owner = :p1 WHERE name = :p2", {owner, node});
    if (!done.ok()) return std::move(done).error();
    if (*done == 0) return Error{ErrorCode::kNotFound, "there is no node '" + node + "'", "node"};
    return note_change(database);
  });
}

}  // namespace flotilla::coordinator
