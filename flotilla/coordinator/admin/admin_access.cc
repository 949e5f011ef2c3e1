#include "flotilla/coordinator/admin/admin_access.h"

#include <sodium.h>

#include <algorithm>

#include "flotilla/base/file.h"
#include "flotilla/base/text.h"
#include "flotilla/serving/access.h"

namespace flotilla::coordinator {
namespace {
constexpr std::size_t kMaxFileBytes = 4096;
}

Result<std::string> read_admin_key(const std::string& setting) {
  std::string key = setting;
  if (setting.starts_with('@')) {
    FLOTILLA_TRY(const std::string text, read_file(setting.substr(1), kMaxFileBytes));
    key = std::string(trim_ascii(text.substr(0, text.find('\n'))));
    if (key.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   "admin_key: " + setting.substr(1) + " has no key in its first line"};
    }
  }
  if (key.empty()) return key;
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (key.size() < kMinAdminKeyBytes || !printable) {
    return Error{ErrorCode::kInvalidArgument,
                 "admin_key has at least " + std::to_string(kMinAdminKeyBytes) +
                     " characters, all printable ASCII without blanks; make one with: "
                     "openssl rand -hex 32"};
  }
  return key;
}

AdminAccess::AdminAccess(std::string_view key) {
  if (!key.empty()) hash_ = hash_key(key);
}

Status AdminAccess::check(const net::Headers& headers) const {
  if (!hash_) {
    return Error{ErrorCode::kPermissionDenied,
                 "the admin API is off: this coordinator has no admin_key"};
  }
  const serving::Credentials credentials = serving::read_credentials(headers);
  if (!credentials.key) {
    return Error{ErrorCode::kUnauthenticated, "the admin key is needed: Authorization: Bearer KEY"};
  }
  const KeyHash given = hash_key(*credentials.key);
  if (sodium_memcmp(given.data(), hash_->data(), given.size()) != 0) {
    return Error{ErrorCode::kUnauthenticated, "this is not the admin key"};
  }
  return ok_status();
}

}  // namespace flotilla::coordinator
