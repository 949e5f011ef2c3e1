// Routes that one program has and the other does not, such as the coordinator's admin API. The
// surface gives them what all routes have: request ids, CORS, methods, the log.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/net/http.h"

namespace flotilla::serving {

struct ExtraRoute {
  using Reply = std::function<void(net::HttpResponse)>;

  std::string method;  // "GET"; several routes may share a path
  std::string path;    // "/v1/admin/keys/{id}": braces stand for one segment that is not empty
  std::string name;    // in the log
  // Who may call it; before the body is read. On an I/O thread, must not block.
  std::function<Status(const net::HttpRequest&)> admit;
  // On an I/O thread, must not block. Calls `reply` once, now or later and from any thread; the
  // request lives as long as a copy of `reply` does.
  std::function<void(const net::HttpRequest&, Reply)> handle;
  // Instead of `handle`, for answers that are not in memory: either `reply`, or `begin` with the
  // head and then write() and end() of the exchange.
  std::function<void(const std::shared_ptr<net::HttpExchange>&, Reply reply, Reply begin)> stream =
      {};
};

// Whether `path` is one of those that `pattern` means.
bool path_matches(std::string_view pattern, std::string_view path);

}  // namespace flotilla::serving
