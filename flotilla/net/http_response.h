// Bytes of an HTTP/1 answer. Internal to net/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/net/http.h"

namespace flotilla::net {

struct ResponseFraming {
  enum class Body { kLength, kChunked, kUntilClose };
  Body body = Body::kLength;
  std::optional<std::uint64_t> length = {};  // with kLength; absent: that of the response's body
  bool http_1_0 = false;
  bool keep_alive = true;
};

// Head with the blank line. Content-Length, Transfer-Encoding, Connection and Date are ours; a
// "Connection: close" of the handler is honoured by the caller. Line breaks in values become
// blanks.
std::string render_response_head(const HttpResponse& response, const ResponseFraming& framing);
bool status_has_body(unsigned status);
bool wants_close(const Headers& headers);  // "Connection: close"
std::string chunk(std::string_view piece);

}  // namespace flotilla::net
