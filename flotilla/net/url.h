// URLs and request targets: the text we parse ourselves. Internal to net/, plus tests and fuzzing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"

namespace flotilla::net {

struct WsUrl {
  bool secure = false;
  std::string host;  // without brackets
  std::uint16_t port = 0;
  std::string target = "/";       // path and query as sent
  std::string authority() const;  // for the Host header
};

Result<WsUrl> parse_ws_url(std::string_view url);

struct RequestTarget {
  std::string path;   // percent-decoded; starts with '/', or is "*"
  std::string query;  // raw, without '?'
};

// Accepts origin form, absolute form (http://host/path) and "*". Refuses broken escapes, NUL and
// other control characters, and fragments.
Result<RequestTarget> parse_request_target(std::string_view target);

// nullopt for a '%' without two hex digits.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace flotilla::net
