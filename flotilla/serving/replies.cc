#include "flotilla/serving/replies.h"

#include "flotilla/api/errors.h"

namespace flotilla::serving {
namespace {

net::HttpResponse shaped_reply(const api::ErrorShape& shape, std::string body) {
  net::HttpResponse response = json_reply(shape.status, std::move(body));
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

net::HttpResponse error_reply(const Error& error) {
  return shaped_reply(api::error_shape(error), api::render_error(error));
}

net::HttpResponse protocol_error_reply(unsigned status, std::string_view message) {
  const api::ErrorShape shape = api::protocol_error_shape(status);
  return shaped_reply(shape, api::render_error(shape, message, {}));
}

}  // namespace flotilla::serving
