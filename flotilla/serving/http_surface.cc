#include "flotilla/serving/http_surface.h"

#include <algorithm>

#include "flotilla/api/json_text.h"
#include "flotilla/api/model_list.h"
#include "flotilla/api/openapi.h"
#include "flotilla/log/log.h"
#include "flotilla/serving/access.h"
#include "flotilla/serving/ids.h"
#include "flotilla/serving/replies.h"

namespace flotilla::serving {
namespace {

enum class Target { kApi, kModels, kModel, kHealth, kReady, kMetrics, kDescription };

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kMessagesPath = "/v1/messages";
constexpr std::chrono::milliseconds kStopPatience{5'000};

// Anthropic's clients say who they are, and nobody else asks for messages.
Dialect dialect_of(const net::HttpRequest& request) {
  const bool is_anthropic =
      request.path.starts_with(kMessagesPath) || request.headers.find("anthropic-version");
  return is_anthropic ? Dialect::kAnthropic : Dialect::kOpenAi;
}

}  // namespace

struct HttpSurface::Route {
  std::string_view path;
  Target target;
  std::string_view name;    // in the log: never the path itself, which is the client's text
  std::string_view method;  // besides OPTIONS
  bool needs_key;
  ApiKind api = ApiKind::kChat;  // with kApi

  static const Route kAll[];
  static const Route* find(std::string_view path);
};

const HttpSurface::Route HttpSurface::Route::kAll[] = {
    {"/v1/chat/completions", Target::kApi, "chat_completions", "POST", true, ApiKind::kChat},
    {"/v1/completions", Target::kApi, "completions", "POST", true, ApiKind::kCompletions},
    {"/v1/responses", Target::kApi, "responses", "POST", true, ApiKind::kResponses},
    {"/v1/messages", Target::kApi, "messages", "POST", true, ApiKind::kMessages},
    {"/v1/messages/count_tokens", Target::kApi, "count_tokens", "POST", true,
     ApiKind::kCountTokens},
    {"/v1/models", Target::kModels, "models", "GET", true},
    {"/v1/models/{id}", Target::kModel, "model", "GET", true},
    {"/healthz", Target::kHealth, "healthz", "GET", false},
    {"/health", Target::kHealth, "healthz", "GET", false},
    {"/readyz", Target::kReady, "readyz", "GET", false},
    {"/metrics", Target::kMetrics, "metrics", "GET", false},
    {"/openapi.json", Target::kDescription, "openapi", "GET", false},
};

const HttpSurface::Route* HttpSurface::Route::find(std::string_view path) {
  // Model ids contain slashes: everything after the prefix is the id.
  const bool is_model = path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size();
  for (const Route& route : kAll) {
    if (is_model ? route.target == Target::kModel
                 : route.target != Target::kModel && route.path == path)
      return &route;
  }
  return nullptr;
}

std::vector<std::pair<std::string_view, std::string_view>> HttpSurface::routes() {
  std::vector<std::pair<std::string_view, std::string_view>> out;
  for (const Route& route : Route::kAll) out.emplace_back(route.method, route.path);
  return out;
}

struct HttpSurface::Exchange {
  std::shared_ptr<net::HttpExchange> http;
  std::string request_id;
  net::Headers headers;  // for every answer
  Clock::Instant started;
  Dialect dialect = Dialect::kOpenAi;

  ReplyStyle style() const { return {dialect, request_id}; }
};

HttpSurface::HttpSurface(ChatBackend& backend, const Clock& clock, LaneFactory lanes,
                         SurfaceOptions options)
    : backend_(backend),
      clock_(clock),
      lanes_(std::move(lanes)),
      options_(std::move(options)),
      cors_(options_.allowed_origins) {}

HttpSurface::~HttpSurface() { stop(); }

void HttpSurface::stop() {
  for (const auto& session : sessions_.close())
    session->stop({ErrorCode::kUnavailable, "the server is stopping"});
  if (!sessions_.wait_until_empty(kStopPatience)) {
    log::error("requests_still_running_at_stop", {{"num_requests", sessions_.size()}});
  }
}

struct HttpSurface::Admission {
  std::string_view name = "unknown";  // of the route, for the log
  Caller caller = {};
  std::optional<net::HttpResponse> refusal = {};
};

HttpSurface::Exchange HttpSurface::begin(const net::HttpRequest& request) const {
  Exchange in{.http = nullptr, .request_id = {}, .headers = {}, .started = clock_.now()};
  in.dialect = dialect_of(request);
  const auto wanted_id = request.headers.find("x-request-id");
  in.request_id =
      wanted_id && is_request_id(*wanted_id) ? std::string(*wanted_id) : random_id("req_");
  in.headers.add("x-request-id", in.request_id);
  if (in.dialect == Dialect::kAnthropic) in.headers.add("request-id", in.request_id);
  cors_.add_headers(request, in.headers);
  return in;
}

HttpSurface::Admission HttpSurface::admit(const net::HttpRequest& request, const Route* route,
                                          const Exchange& in) const {
  if (route == nullptr || (route->target == Target::kMetrics && !options_.metrics)) {
    return {.refusal = protocol_refusal(in.style(), 404,
                                        "unknown URL; what there is, /openapi.json says")};
  }
  Admission out{.name = route->name};
  if (request.method == "OPTIONS") {
    out.refusal = cors_.preflight(request, std::string(route->method) + ", OPTIONS");
    return out;
  }
  // The server leaves the body of an answer to HEAD out.
  if (request.method != route->method && !(request.method == "HEAD" && route->method == "GET")) {
    out.refusal = protocol_refusal(in.style(), 405,
                                   "this URL answers " + std::string(route->method) + " only");
    out.refusal->headers.add("Allow", std::string(route->method) + ", OPTIONS");
    return out;
  }
  if (route->needs_key) {
    auto found = identify(request);
    if (found.ok()) {
      out.caller = std::move(found).value();
    } else {
      out.refusal = error_reply(found.error(), in.style());
    }
  }
  return out;
}

struct HttpSurface::ExtraAdmission {
  const ExtraRoute* route = nullptr;  // any of the path, when refused
  std::optional<net::HttpResponse> refusal = {};
};

std::optional<HttpSurface::ExtraAdmission> HttpSurface::admit_extra(const net::HttpRequest& request,
                                                                    const Exchange& in) const {
  std::optional<ExtraAdmission> out;
  std::string methods;
  bool found = false;
  for (const ExtraRoute& route : options_.extra_routes) {
    if (!path_matches(route.path, request.path)) continue;
    methods += route.method + ", ";
    // The server leaves the body of an answer to HEAD out.
    const bool same =
        request.method == route.method || (request.method == "HEAD" && route.method == "GET");
    if (!out || same) out = ExtraAdmission{&route, {}};
    found = found || same;
  }
  if (!out) return out;
  if (request.method == "OPTIONS") {
    out->refusal = cors_.preflight(request, methods + "OPTIONS");
  } else if (!found) {
    methods.resize(methods.size() - 2);
    out->refusal = protocol_refusal(in.style(), 405, "this URL answers " + methods + " only");
    out->refusal->headers.add("Allow", methods + ", OPTIONS");
  } else if (Status admitted = out->route->admit(request); !admitted.ok()) {
    out->refusal = error_reply(admitted.error(), in.style());
  }
  return out;
}

std::optional<net::HttpResponse> HttpSurface::check_head(const net::HttpRequest& head) const {
  const Route* route = Route::find(head.path);
  const Exchange in = begin(head);
  if (route == nullptr) {
    if (auto extra = admit_extra(head, in)) {
      if (!extra->refusal && extra->route->method == "GET") {
        extra->refusal = protocol_refusal(in.style(), 400, "this URL takes no request body");
      }
      if (!extra->refusal) return std::nullopt;
      return finish(clock_, in, extra->route->name, std::move(*extra->refusal));
    }
  }
  Admission admission = admit(head, route, in);
  if (!admission.refusal && route->target != Target::kApi) {
    admission.refusal = protocol_refusal(in.style(), 400, "this URL takes no request body");
  }
  if (!admission.refusal) return std::nullopt;
  return finish(clock_, in, admission.name, std::move(*admission.refusal));
}

void HttpSurface::handle(std::shared_ptr<net::HttpExchange> http) {
  const net::HttpRequest& request = http->request();
  const Route* route = Route::find(request.path);
  Exchange in = begin(request);
  in.http = std::move(http);
  if (route == nullptr) {
    if (auto extra = admit_extra(request, in)) {
      if (extra->refusal) return answer(in, extra->route->name, std::move(*extra->refusal));
      // May outlive the surface, but not the clock and the connection.
      const auto reply = [&clock = clock_, in,
                          name = extra->route->name](net::HttpResponse response) {
        in.http->send(finish(clock, in, name, std::move(response)));
      };
      if (!extra->route->stream) return extra->route->handle(request, reply);
      return extra->route->stream(
          in.http, reply, [&clock = clock_, in, name = extra->route->name](net::HttpResponse head) {
            in.http->begin_stream(finish(clock, in, name, std::move(head)));
          });
    }
  }
  Admission admission = admit(request, route, in);
  if (admission.refusal) return answer(in, admission.name, std::move(*admission.refusal));
  Caller caller = std::move(admission.caller);
  caller.request_id = in.request_id;
  switch (route->target) {
    case Target::kApi:
      serve_api(in, *route, std::move(caller));
      return;
    case Target::kModels:
      answer(in, route->name, serve_models());
      return;
    case Target::kModel:
      answer(in, route->name,
             serve_model(std::string_view(request.path).substr(kModelPrefix.size()), in.style()));
      return;
    case Target::kHealth:
      answer(in, route->name, json_reply(200, R"({"status":"ok"})"));
      return;
    case Target::kReady:
      answer(in, route->name, serve_readyz());
      return;
    case Target::kDescription:
      answer(in, route->name, json_reply(200, std::string(api::openapi_document())));
      return;
    case Target::kMetrics: {
      net::HttpResponse response{.status = 200, .headers = {}, .body = options_.metrics()};
      response.headers.add("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
      answer(in, route->name, std::move(response));
      return;
    }
  }
}

net::HttpResponse HttpSurface::finish(const Clock& clock, const Exchange& in,
                                      std::string_view route, net::HttpResponse response) {
  response.headers.entries.insert(response.headers.entries.end(), in.headers.entries.begin(),
                                  in.headers.entries.end());
  const auto elapsed =
      std::chrono::duration_cast<std::chrono::milliseconds>(clock.now() - in.started);
  // Probes come every few seconds and say nothing while they succeed.
  const bool is_probe = route == "healthz" || route == "readyz" || route == "metrics";
  if (is_probe && response.status < 400) {
    log::debug("request",
               {{"request", in.request_id}, {"route", route}, {"status", response.status}});
  } else {
    log::info("request", {{"request", in.request_id},
                          {"route", route},
                          {"status", response.status},
                          {"ms", elapsed.count()}});
  }
  return response;
}

void HttpSurface::answer(const Exchange& in, std::string_view route,
                         net::HttpResponse response) const {
  in.http->send(finish(clock_, in, route, std::move(response)));
}

Result<Caller> HttpSurface::identify(const net::HttpRequest& request) const {
  const Credentials credentials = read_credentials(request.headers);
  if (credentials.key) return backend_.authenticate(*credentials.key);
  // Without a usable key only a surface without keys lets anybody in.
  auto local = backend_.authenticate(std::nullopt);
  if (!local.ok()) {
    return credentials.malformed
               ? Error{ErrorCode::kUnauthenticated,
                       "the API key is empty, malformed, or two different ones were sent"}
               : Error{ErrorCode::kUnauthenticated,
                       "no API key; send it as 'Authorization: Bearer KEY'"};
  }
  if (cors_.is_foreign(request)) {
    return Error{ErrorCode::kPermissionDenied,
                 "web pages of this origin are not allowed to call the server"};
  }
  return local;
}

void HttpSurface::serve_api(const Exchange& in, const Route& route, Caller caller) {
  const net::HttpRequest& request = in.http->request();
  const auto encoding = request.headers.find("content-encoding");
  if (encoding && *encoding != "identity") {
    answer(in, route.name,
           protocol_refusal(in.style(), 415, "compressed request bodies are not supported"));
    return;
  }
  if (request.body.size() > options_.session.max_body_bytes) {
    answer(in, route.name,
           protocol_refusal(in.style(), 413,
                            "the body of " + std::to_string(request.body.size()) +
                                " bytes exceeds the limit of " +
                                std::to_string(options_.session.max_body_bytes)));
    return;
  }
  const ChatSession::Context context{backend_, clock_, options_.session, sessions_};
  ChatSession::Request session{.api = route.api,
                               .dialect = in.dialect,
                               .exchange = in.http,
                               .caller = std::move(caller),
                               .base_headers = in.headers};
  auto lane = lanes_(*in.http);
  std::make_shared<ChatSession>(context, std::move(session), std::move(lane))->start();
}

net::HttpResponse HttpSurface::serve_models() const {
  return json_reply(200, api::render_model_list(backend_.models()));
}

net::HttpResponse HttpSurface::serve_model(std::string_view id, const ReplyStyle& style) const {
  for (const ModelEntry& model : backend_.models()) {
    if (model.id == id) return json_reply(200, api::render_model(model));
  }
  return error_reply({ErrorCode::kNotFound, "there is no model of this name", "model"}, style);
}

net::HttpResponse HttpSurface::serve_readyz() const {
  std::string why_not;
  if (backend_.ready(&why_not)) return json_reply(200, R"({"status":"ready"})");
  std::string body = R"({"status":"not ready","reason":)";
  api::append_json_string(body, why_not);
  return json_reply(503, body + "}");
}

}  // namespace flotilla::serving
