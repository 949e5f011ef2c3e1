#include "flotilla/serving/cors.h"

#include "flotilla/serving/replies.h"

namespace flotilla::serving {
namespace {

constexpr std::string_view kAnyPort = ":*";

bool matches(std::string_view entry, std::string_view origin) {
  if (entry == origin) return true;
  if (!entry.ends_with(kAnyPort)) return false;
  const std::string_view host = entry.substr(0, entry.size() - kAnyPort.size());
  if (!origin.starts_with(host)) return false;
  origin.remove_prefix(host.size());
  if (origin.empty()) return true;
  if (origin[0] != ':' || origin.size() == 1) return false;
  return origin.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

// Header names separated by commas, fit to be sent back.
bool is_header_list(std::string_view text) {
  if (text.empty() || text.size() > 1024) return false;
  for (const char c : text) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '_' || c == ',' || c == ' ';
    if (!ok) return false;
  }
  return true;
}

std::string_view host_of(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

// A name in a page's address can be made to point here (DNS rebinding); an address cannot, nor can
// localhost.
bool cannot_be_rebound(std::string_view host) {
  if (host.starts_with('[')) return true;
  host = host.substr(0, host.find(':'));
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

CorsPolicy::CorsPolicy(std::vector<std::string> allowed_origins)
    : allowed_origins_(std::move(allowed_origins)) {
  for (const std::string& entry : allowed_origins_) allows_all_ = allows_all_ || entry == "*";
}

bool CorsPolicy::allows(std::string_view origin) const {
  if (allows_all_) return true;
  for (const std::string& entry : allowed_origins_) {
    if (matches(entry, origin)) return true;
  }
  return false;
}

void CorsPolicy::add_headers(const net::HttpRequest& request, net::Headers& out) const {
  const auto origin = request.headers.find("origin");
  if (!origin) return;
  if (!allows_all_) out.add("Vary", "Origin");
  if (!allows(*origin)) return;
  out.add("Access-Control-Allow-Origin", allows_all_ ? "*" : std::string(*origin));
  out.add("Access-Control-Expose-Headers", "x-request-id, request-id, retry-after");
}

net::HttpResponse CorsPolicy::preflight(const net::HttpRequest& request,
                                        std::string_view allow) const {
  const auto origin = request.headers.find("origin");
  if (origin && !allows(*origin)) {
    return error_reply(
        Error{ErrorCode::kPermissionDenied, "this origin is not allowed to call the server"});
  }
  net::HttpResponse response{.status = 204, .headers = {}, .body = {}};
  response.headers.add("Allow", std::string(allow));
  if (!origin) return response;
  response.headers.add("Access-Control-Allow-Methods", std::string(allow));
  const auto wanted = request.headers.find("access-control-request-headers");
  response.headers.add("Access-Control-Allow-Headers",
                       wanted && is_header_list(*wanted)
                           ? std::string(*wanted)
                           : "authorization, content-type, x-api-key, x-request-id");
  response.headers.add("Access-Control-Max-Age", "600");
  return response;
}

bool CorsPolicy::is_foreign(const net::HttpRequest& request) const {
  const auto origin = request.headers.find("origin");
  if (!origin || allows(*origin)) return false;
  const auto host = request.headers.find("host");
  return !host || host_of(*origin) != *host || !cannot_be_rebound(*host);
}

Status check_origin(std::string_view entry) {
  if (entry == "*") return ok_status();
  std::string_view host = host_of(entry);
  if (host.ends_with(kAnyPort)) host.remove_suffix(kAnyPort.size());
  if (host.empty() || host.find_first_of("/ *?#@") != std::string_view::npos) {
    return Error{
        ErrorCode::kInvalidArgument,
        "'" + std::string(entry) + "' is no origin; write https://host, http://host:* or *"};
  }
  return ok_status();
}

}  // namespace flotilla::serving
