// The HTTP surface that clients see: routes, keys, CORS, request ids. `flotilla serve` and the
// coordinator each put their ChatBackend under it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/net/http.h"
#include "flotilla/serving/chat_backend.h"
#include "flotilla/serving/chat_session.h"
#include "flotilla/serving/cors.h"
#include "flotilla/serving/extra_route.h"
#include "flotilla/serving/lane.h"

namespace flotilla::serving {

struct SurfaceOptions {
  SessionOptions session;
  std::vector<std::string> allowed_origins;  // see CorsPolicy
  std::function<std::string()>
      metrics;  // the text of /metrics; absent: no such route. Called on I/O threads.
  std::vector<ExtraRoute> extra_routes;  // looked at after the surface's own
};

// Thread-safe. `backend` and `clock` must outlive it, and the lanes' runtime must still run when it
// is destroyed.
class HttpSurface {
 public:
  HttpSurface(ChatBackend& backend, const Clock& clock, LaneFactory lanes, SurfaceOptions options);
  // stop(), unless that was done. Destroy the HttpServer first.
  ~HttpSurface();
  HttpSurface(const HttpSurface&) = delete;
  HttpSurface& operator=(const HttpSurface&) = delete;

  // Ends what is running with kUnavailable: an HTTP status where nothing was sent, an error event
  // in a stream. Waits until the answers are handed to their connections. New requests are refused
  // from then on. Not on an I/O thread.
  void stop();

  // For net::HttpServer.
  void handle(std::shared_ptr<net::HttpExchange> exchange);
  net::HttpHandler handler() {
    return [this](std::shared_ptr<net::HttpExchange> exchange) { handle(std::move(exchange)); };
  }

  // For net::HttpServer: whoever may not use a route is refused before the body is read.
  std::optional<net::HttpResponse> check_head(const net::HttpRequest& head) const;

  std::size_t num_running() const { return sessions_.size(); }

  // Every path of its own and the method it answers, for the check of the API's description.
  static std::vector<std::pair<std::string_view, std::string_view>> routes();

 private:
  struct Route;
  struct Exchange;

  Exchange begin(const net::HttpRequest& request) const;
  // The route and who asks, or a refusal.
  struct Admission;
  Admission admit(const net::HttpRequest& request, const Route* route, const Exchange& in) const;
  // As admit(), for `extra_routes`; nullopt: none of them has this path.
  struct ExtraAdmission;
  std::optional<ExtraAdmission> admit_extra(const net::HttpRequest& request,
                                            const Exchange& in) const;
  static net::HttpResponse finish(const Clock& clock, const Exchange& in, std::string_view route,
                                  net::HttpResponse response);
  void answer(const Exchange& in, std::string_view route, net::HttpResponse response) const;
  Result<Caller> identify(const net::HttpRequest& request) const;
  void serve_api(const Exchange& in, const Route& route, Caller caller);
  net::HttpResponse serve_models() const;
  net::HttpResponse serve_model(std::string_view id, const ReplyStyle& style) const;
  net::HttpResponse serve_readyz() const;

  ChatBackend& backend_;
  const Clock& clock_;
  const LaneFactory lanes_;
  const SurfaceOptions options_;
  const CorsPolicy cors_;
  SessionSet sessions_;
};

}  // namespace flotilla::serving
