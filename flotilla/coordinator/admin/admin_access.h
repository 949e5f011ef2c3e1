// Who may use the admin routes: whoever has the one admin key of the settings.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/coordinator/auth/key_table.h"
#include "flotilla/net/http.h"

namespace flotilla::coordinator {

inline constexpr std::size_t kMinAdminKeyBytes = 16;

// The key that the setting `admin_key` means: itself, or the first line of the file after '@'. An
// empty setting is an empty key. kInvalidArgument for a key that is too short or has characters
// that no header carries; the message never shows it.
Result<std::string> read_admin_key(const std::string& setting);

// Thread-safe. Keeps the hash only.
class AdminAccess {
 public:
  // Empty: nobody is an administrator.
  explicit AdminAccess(std::string_view key);

  bool enabled() const { return hash_.has_value(); }
  // kPermissionDenied without a configured key; kUnauthenticated for a missing or another key. The
  // comparison takes the same time however much of a key is right.
  Status check(const net::Headers& headers) const;

 private:
  std::optional<KeyHash> hash_;
};

}  // namespace flotilla::coordinator
