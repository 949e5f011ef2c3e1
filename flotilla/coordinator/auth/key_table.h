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
};

struct NewKey {
  KeyRecord record;
  std::string key;  // shown once, stored nowhere
};

Result<NewKey> create_key(store::Database& database, const std::string& name, std::int64_t now);
Result<std::vector<KeyRecord>> list_keys(store::Database& database);
// By id or by name; kNotFound, or kInvalidArgument when several active keys have the name. A
// revoked key stays listed.
Result<KeyRecord> revoke_key(store::Database& database, const std::string& id_or_name,
                             std::int64_t now);

}  // namespace flotilla::coordinator
