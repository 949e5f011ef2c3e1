// API keys in the database. A key is "fl-" and 256 random bits; only its hash is stored.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/coordinator/money/accounts.h"
#include "flotilla/store/database.h"

namespace flotilla::coordinator {

using KeyHash = std::array<std::uint8_t, 32>;
KeyHash hash_key(std::string_view key);

struct KeyRecord {
  ApiKeyId id;
  std::string name;
  std::string prefix;  // "fl-Ab3dE"
  KeyHash hash{};
  std::int64_t created = 0;
  std::optional<std::int64_t> revoked;
  AccountId account = kDefaultAccount;  // pays for it
  std::optional<std::int64_t> expires;  // unix seconds
  std::optional<Micro> spend_limit;     // in all
  Micro spent = 0;
  Limits limits;
  bool active_at(std::int64_t now) const { return !revoked && (!expires || *expires > now); }
};

struct KeyOrder {
  std::string name;
  AccountId account = kDefaultAccount;
  std::optional<std::int64_t> expires = {};
  std::optional<Micro> spend_limit = {};
  Limits limits = {};
};

struct NewKey {
  KeyRecord record;
  std::string key;  // shown once, stored nowhere
};

Result<NewKey> create_key(store::Database& database, const std::string& name, std::int64_t now);
Result<NewKey> create_key(store::Database& database, const KeyOrder& order, std::int64_t now);
Result<std::vector<KeyRecord>> list_keys(store::Database& database,
                                         std::optional<AccountId> account = {});
// By id or, where none has it, by name, of one account or of any; kNotFound, or kInvalidArgument
// when several active keys have the name. A revoked key stays listed.
Result<KeyRecord> revoke_key(store::Database& database, const std::string& id_or_name,
                             std::int64_t now, std::optional<AccountId> account = {});

}  // namespace flotilla::coordinator
