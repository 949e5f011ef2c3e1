// Errors as OpenAI's clients know them: {"error":{"message","type","param","code"}}. The one place
// that maps our codes to HTTP.
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

// A JSON text. An empty param becomes null.
std::string render_error(const ErrorShape& shape, std::string_view message, std::string_view param);
std::string render_error(const Error& error);

}  // namespace flotilla::api
