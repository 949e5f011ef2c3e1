// Whole answers of the surface.
#pragma once

#include <string>
#include <string_view>

#include "flotilla/base/error.h"
#include "flotilla/net/http.h"

namespace flotilla::serving {

// Whose shape errors have.
enum class Dialect { kOpenAi, kAnthropic };

struct ReplyStyle {
  Dialect dialect = Dialect::kOpenAi;
  std::string_view request_id = {};  // Anthropic's errors carry it
};

net::HttpResponse json_reply(unsigned status, std::string body);
// With Retry-After and WWW-Authenticate where the status calls for them.
net::HttpResponse error_reply(const Error& error, const ReplyStyle& style = {});
// For faults that only HTTP knows (404, 405, 413, ...).
net::HttpResponse protocol_refusal(const ReplyStyle& style, unsigned status,
                                   std::string_view message);
// The same before a route is known; also what net::HttpServer's ErrorBody should be.
net::HttpResponse protocol_error_reply(unsigned status, std::string_view message);

}  // namespace flotilla::serving
