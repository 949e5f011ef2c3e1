#include "flotilla/serving/replies.h"

#include "flotilla/api/errors.h"

namespace flotilla::serving {
namespace {

net::HttpResponse shaped_reply(api::ErrorShape shape, std::string_view message,
                               std::string_view param, const ReplyStyle& style) {
  const bool is_anthropic = style.dialect == Dialect::kAnthropic;
  if (is_anthropic) shape = api::anthropic_shape(shape);
  net::HttpResponse response = json_reply(
      shape.status, is_anthropic ? api::render_anthropic_error(shape, message, style.request_id)
                                 : api::render_error(shape, message, param));
  if (shape.retry_after_s > 0)
    response.headers.add("Retry-After", std::to_string(shape.retry_after_s));
  if (shape.status == 401) response.headers.add("WWW-Authenticate", "Bearer realm=\"flotilla\"");
  return response;
}

}  // namespace

net::HttpResponse json_reply(unsigned status, std::string body) {
  net::HttpResponse response{.status = status, .headers = {}, .body = std::move(body)};
  response.headers.add("Content-Type", "application/json");
  return response;
}

net::HttpResponse error_reply(const Error& error, const ReplyStyle& style) {
  return shaped_reply(api::error_shape(error), error.message, error.param, style);
}

net::HttpResponse protocol_refusal(const ReplyStyle& style, unsigned status,
                                   std::string_view message) {
  return shaped_reply(api::protocol_error_shape(status), message, {}, style);
}

net::HttpResponse protocol_error_reply(unsigned status, std::string_view message) {
  return protocol_refusal({}, status, message);
}

}  // namespace flotilla::serving
