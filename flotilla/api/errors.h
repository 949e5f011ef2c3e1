// Errors as the clients of each API know them. The one place that maps our codes to HTTP.
#pragma once

#include <string>
#include <string_view>

#include "flotilla/base/error.h"

namespace flotilla::api {

// The closed set: one row per ErrorCode, and rows for what HTTP alone knows (unknown route, wrong
// method, ...).
struct ErrorShape {
  unsigned status;
  std::string_view type;
  std::string_view code;
  int retry_after_s;  // 0: no Retry-After header
};

ErrorShape error_shape(const Error& error);
// For faults of the HTTP exchange itself; an unknown status counts as 400.
ErrorShape protocol_error_shape(unsigned status);

// {"error":{"message","type","param","code"}}. An empty param becomes null.
std::string render_error(const ErrorShape& shape, std::string_view message, std::string_view param);
std::string render_error(const Error& error);

// The same for Anthropic's clients, which know fewer types and a status of their own, 529.
ErrorShape anthropic_shape(ErrorShape shape);
// {"type":"error","error":{"type","message"},"request_id"}. `shape` as anthropic_shape gives it.
std::string render_anthropic_error(const ErrorShape& shape, std::string_view message,
                                   std::string_view request_id);

}  // namespace flotilla::api
