#include "flotilla/coordinator/auth/api_key_store.h"

#include <cstring>
#include <unordered_map>

namespace flotilla::coordinator {
namespace {

constexpr std::size_t kMaxKeyBytes = 256;

struct HashOfHash {
  std::size_t operator()(const KeyHash& hash) const {
    std::size_t out = 0;  // random already
    std::memcpy(&out, hash.data(), sizeof out);
    return out;
  }
};

}  // namespace

struct ApiKeyStore::Index {
  struct Entry {
    ApiKeyId id;
    AccountId account;
    bool revoked;
    std::optional<std::int64_t> expires;
  };
  // Looked up by hash: what the time of a lookup tells about a hash tells nothing about a key.
  std::unordered_map<KeyHash, Entry, HashOfHash> keys;
  std::size_t num_active = 0;
};

ApiKeyStore::ApiKeyStore() : index_(std::make_shared<Index>()) {}
ApiKeyStore::~ApiKeyStore() = default;

void ApiKeyStore::load(const std::vector<KeyRecord>& keys) {
  auto fresh = std::make_shared<Index>();
  for (const KeyRecord& key : keys) {
    fresh->keys.emplace(key.hash,
                        Index::Entry{key.id, key.account, key.revoked.has_value(), key.expires});
    if (!key.revoked) ++fresh->num_active;
  }
  std::lock_guard lock(mutex_);
  index_ = std::move(fresh);
}

std::shared_ptr<const ApiKeyStore::Index> ApiKeyStore::index() const {
  std::lock_guard lock(mutex_);
  return index_;
}

Result<serving::Caller> ApiKeyStore::authenticate(std::optional<std::string_view> key,
                                                  std::int64_t now) const {
  if (!key)
    return Error{ErrorCode::kUnauthenticated, "an API key is needed: Authorization: Bearer KEY"};
  if (key->size() > kMaxKeyBytes)
    return Error{ErrorCode::kUnauthenticated, "the API key is not valid"};
  const auto keys = index();
  const auto found = keys->keys.find(hash_key(*key));
  if (found == keys->keys.end())
    return Error{ErrorCode::kUnauthenticated, "the API key is not valid"};
  if (found->second.revoked) return Error{ErrorCode::kUnauthenticated, "the API key was revoked"};
  if (found->second.expires && *found->second.expires <= now)
    return Error{ErrorCode::kUnauthenticated, "the API key has expired"};
  serving::Caller caller;
  caller.key_id = found->second.id.value;
  caller.account_id = found->second.account.value;
  caller.tenant = "key-" + std::to_string(caller.key_id);
  return caller;
}

std::size_t ApiKeyStore::num_active() const { return index()->num_active; }

}  // namespace flotilla::coordinator
