#include "flotilla/coordinator/auth/key_table.h"

#include <sodium.h>

#include <cstring>

#include "flotilla/base/text.h"
#include "flotilla/coordinator/schema.h"

namespace flotilla::coordinator {
namespace {

constexpr std::string_view kKeyPrefix = "fl-";
constexpr std::size_t kShownCharacters = 8;
constexpr std::size_t kMaxNameBytes = 128;
constexpr std::string_view kColumns =
    "SELECT id, name, prefix, hash, created, revoked, account, expires, spend_limit, spent, "
    "requests_per_minute, input_tokens_per_minute, output_tokens_per_minute FROM api_keys ";

Status check_key_name(const std::string& name) {
  bool good = !trim_ascii(name).empty() && name.size() <= kMaxNameBytes && is_valid_utf8(name);
  for (const char c : name) good = good && static_cast<unsigned char>(c) >= 0x20 && c != 0x7F;
  if (good) return ok_status();
  return Error{ErrorCode::kInvalidArgument, "a key's name has 1 to 128 bytes of printable text",
               "name"};
}

std::optional<std::int64_t> optional_integer(const store::Row& row, std::size_t column) {
  if (row.is_null(column)) return std::nullopt;
  return row.integer(column);
}

store::Value to_value(const std::optional<std::int64_t>& value) {
  return value ? store::Value(*value) : store::Value();
}

Status check(const KeyOrder& order, std::int64_t now) {
  FLOTILLA_TRY_STATUS(check_key_name(order.name));
  FLOTILLA_TRY_STATUS(check_limits(order.limits));
  if (order.expires && *order.expires <= now) {
    return Error{ErrorCode::kInvalidArgument, "a key expires in the future", "expires_at"};
  }
  if (order.spend_limit && (*order.spend_limit < 0 || *order.spend_limit > kMaxAmount)) {
    return Error{ErrorCode::kInvalidArgument,
                 "a spend limit is from 0 to " + format_amount(kMaxAmount), "spend_limit"};
  }
  if (order.account == kOutsideAccount || order.account == kPlatformAccount) {
    return Error{ErrorCode::kInvalidArgument, "the system's own accounts have no keys", "account"};
  }
  return ok_status();
}

KeyRecord read(const store::Row& row) {
  KeyRecord record;
  record.id.value = static_cast<std::uint64_t>(row.integer(0));
  record.name = row.text(1);
  record.prefix = row.text(2);
  if (const auto hash = from_hex(row.text(3)); hash && hash->size() == record.hash.size()) {
    std::memcpy(record.hash.data(), hash->data(), hash->size());
  }
  record.created = row.integer(4);
  record.revoked = optional_integer(row, 5);
  record.account.value = static_cast<std::uint64_t>(row.integer(6));
  record.expires = optional_integer(row, 7);
  record.spend_limit = optional_integer(row, 8);
  record.spent = row.integer(9);
  record.limits = {optional_integer(row, 10), optional_integer(row, 11), optional_integer(row, 12)};
  return record;
}

}  // namespace

KeyHash hash_key(std::string_view key) {
  KeyHash hash{};
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(key.data()),
                     key.size(), nullptr, 0);
  return hash;
}

Result<NewKey> create_key(store::Database& database, const std::string& name, std::int64_t now) {
  return create_key(database, KeyOrder{.name = name}, now);
}

Result<NewKey> create_key(store::Database& database, const KeyOrder& order, std::int64_t now) {
  FLOTILLA_TRY_STATUS(check(order, now));
  std::array<std::uint8_t, 32> secret{};
  if (sodium_init() < 0) return Error{ErrorCode::kInternal, "libsodium could not be initialised"};
  randombytes_buf(secret.data(), secret.size());
  NewKey made;
  made.key = std::string(kKeyPrefix) + to_base64url(secret);
  sodium_memzero(secret.data(), secret.size());
  made.record.name = order.name;
  made.record.prefix = made.key.substr(0, kShownCharacters);
  made.record.hash = hash_key(made.key);
  made.record.created = now;
  made.record.account = order.account;
  made.record.expires = order.expires;
  made.record.spend_limit = order.spend_limit;
  made.record.limits = order.limits;
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    FLOTILLA_TRY(const Account account, find_account(database, order.account));
    FLOTILLA_TRY(const auto last, database.query("SELECT MAX(id) FROM api_keys"));
    const std::int64_t id = last.at(0).integer(0) + 1;
    made.record.id.value = static_cast<std::uint64_t>(id);
    auto inserted = database.execute(
        "INSERT INTO api_keys (id, name, prefix, hash, created, account, expires, "
        "spend_limit, requests_per_minute, input_tokens_per_minute, output_tokens_per_minute) "
        "VALUES (:p1, :p2, :p3, :p4, :p5, :p6, :p7, :p8, :p9, :p10, :p11)",
        {id, order.name, made.record.prefix, to_hex(made.record.hash), now,
         static_cast<std::int64_t>(account.id.value), to_value(order.expires),
         to_value(order.spend_limit), to_value(order.limits.requests),
         to_value(order.limits.input_tokens), to_value(order.limits.output_tokens)});
    if (!inserted.ok()) return std::move(inserted).error();
    return note_change(database);
  }));
  return made;
}

Result<std::vector<KeyRecord>> list_keys(store::Database& database,
                                         std::optional<AccountId> account) {
  std::string sql(kColumns);
  std::vector<store::Value> parameters;
  if (account) {
    sql += "WHERE account = :p1 ";
    parameters.emplace_back(static_cast<std::int64_t>(account->value));
  }
  FLOTILLA_TRY(const auto rows, database.query(sql + "ORDER BY id", std::move(parameters)));
  std::vector<KeyRecord> keys;
  keys.reserve(rows.size());
  for (const store::Row& row : rows) keys.push_back(read(row));
  return keys;
}

Result<KeyRecord> revoke_key(store::Database& database, const std::string& id_or_name,
                             std::int64_t now, std::optional<AccountId> account) {
  KeyRecord revoked;
  FLOTILLA_TRY_STATUS(database.transaction([&]() -> Status {
    FLOTILLA_TRY(const auto keys, list_keys(database));
    const KeyRecord* found = nullptr;
    std::size_t num_found = 0;
    for (const KeyRecord& key : keys) {
      if (account && key.account != *account) continue;
      if (std::to_string(key.id.value) == id_or_name) {  // whatever others are named
        found = &key;
        num_found = 1;
        break;
      }
      if (key.name != id_or_name || key.revoked) continue;
      found = &key;
      ++num_found;
    }
    if (num_found > 1) {
      return Error{ErrorCode::kInvalidArgument,
                   "several keys match '" + id_or_name + "'; revoke one by its id (keys list)"};
    }
    if (found == nullptr)
      return Error{ErrorCode::kNotFound, "no active key with id or name '" + id_or_name + "'"};
    revoked = *found;
    if (revoked.revoked) return ok_status();
    revoked.revoked = now;
    auto updated = database.execute("UPDATE api_keys SET revoked = :p1 WHERE id = :p2",
                                    {now, static_cast<std::int64_t>(revoked.id.value)});
    if (!updated.ok()) return std::move(updated).error();
    return note_change(database);
  }));
  return revoked;
}

}  // namespace flotilla::coordinator
