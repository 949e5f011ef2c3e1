// The keys that are valid now, in memory: a check never waits for the database.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/coordinator/auth/key_table.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::coordinator {

// Thread-safe.
class ApiKeyStore {
 public:
  ApiKeyStore();
  ~ApiKeyStore();
  // Replaces what is known.
  void load(const std::vector<KeyRecord>& keys);
  // kUnauthenticated: no key, an unknown one, or one that was revoked or has expired (at `now`,
  // unix seconds). request_id stays empty.
  Result<serving::Caller> authenticate(std::optional<std::string_view> key,
                                       std::int64_t now = 0) const;
  std::size_t num_active() const;

 private:
  struct Index;
  std::shared_ptr<const Index> index() const;
  mutable std::mutex mutex_;
  std::shared_ptr<const Index> index_;  // guarded by mutex_; what it points to never changes
};

}  // namespace flotilla::coordinator
