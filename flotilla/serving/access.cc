#include "flotilla/serving/access.h"

#include "flotilla/base/text.h"

namespace flotilla::serving {
namespace {

constexpr std::size_t kMaxKeyBytes = 512;

bool is_key(std::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes) return false;
  for (const char c : key) {
    if (c <= 0x20 || c >= 0x7f) return false;
  }
  return true;
}

// The part after "Bearer ", nullopt for another scheme.
std::optional<std::string_view> bearer_token(std::string_view value) {
  constexpr std::string_view kScheme = "bearer";
  if (value.size() < kScheme.size()) return std::nullopt;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if ((value[i] | 0x20) != kScheme[i]) return std::nullopt;
  }
  value.remove_prefix(kScheme.size());
  if (!value.empty() && value[0] != ' ' && value[0] != '\t') return std::nullopt;
  while (!value.empty() && (value[0] == ' ' || value[0] == '\t')) value.remove_prefix(1);
  return value;
}

}  // namespace

Credentials read_credentials(const net::Headers& headers) {
  Credentials out;
  const auto take = [&out](std::optional<std::string_view> key) {
    if (!key || !is_key(*key) || (out.key && *out.key != *key)) {
      out.malformed = true;
    } else {
      out.key = std::string(*key);
    }
  };
  for (const std::string_view value : headers.find_all("authorization")) take(bearer_token(value));
  for (const std::string_view value : headers.find_all("x-api-key")) take(value);
  if (out.malformed) out.key.reset();
  return out;
}

}  // namespace flotilla::serving
