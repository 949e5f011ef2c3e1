#include "flotilla/net/url.h"

#include <algorithm>
#include <charconv>

#include "flotilla/net/ws_client.h"

namespace flotilla::net {

namespace {

Error bad_url(std::string_view url, std::string_view why) {
  return {ErrorCode::kInvalidArgument, "URL '" + std::string(url) + "': " + std::string(why)};
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  // 127.0.0.0/8 in its plain form only: other spellings are not worth a plaintext connection.
  if (host.rfind("127.", 0) != 0) return false;
  int num_parts = 0;
  for (std::size_t at = 0; at <= host.size();) {
    const std::size_t end = std::min(host.find('.', at), host.size());
    unsigned value = 256;
    const auto [stop, error] = std::from_chars(host.data() + at, host.data() + end, value);
    if (error != std::errc() || stop != host.data() + end || value > 255) return false;
    ++num_parts;
    at = end + 1;
  }
  return num_parts == 4;
}

}  // namespace

std::string WsUrl::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (secure ? 443 : 80) ? name : name + ":" + std::to_string(port);
}

Result<WsUrl> parse_ws_url(std::string_view url) {
  WsUrl out;
  std::string_view rest = url;
  if (rest.substr(0, 5) == "ws://") {
    rest.remove_prefix(5);
  } else if (rest.substr(0, 6) == "wss://") {
    rest.remove_prefix(6);
    out.secure = true;
  } else {
    return bad_url(url, "must start with ws:// or wss://");
  }
  const std::size_t path_at = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, path_at);
  std::string_view target = rest.substr(path_at);
  if (authority.find('@') != std::string_view::npos)
    return bad_url(url, "user names are not supported");
  if (target.find('#') != std::string_view::npos)
    return bad_url(url, "fragments are not supported");
  if (std::any_of(rest.begin(), rest.end(), [](char c) { return is_control(c) || c == ' '; })) {
    return bad_url(url, "contains a blank or control character");
  }
  if (!target.empty())
    out.target = target[0] == '?' ? "/" + std::string(target) : std::string(target);

  std::string_view port;
  if (!authority.empty() && authority.front() == '[') {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad_url(url, "']' is missing");
    out.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
  } else {
    const std::size_t colon = std::min(authority.find(':'), authority.size());
    out.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (out.host.empty()) return bad_url(url, "host is missing");
  out.port = out.secure ? 443 : 80;
  if (!port.empty()) {
    if (port.front() != ':') return bad_url(url, "bad text after the host");
    port.remove_prefix(1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (error != std::errc() || end != port.data() + port.size() || out.port == 0) {
      return bad_url(url, "port must be 1 to 65535");
    }
  }
  return out;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

Result<RequestTarget> parse_request_target(std::string_view target) {
  const auto refuse = [](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, "request target: " + std::string(why)};
  };
  if (target == "*") return RequestTarget{"*", ""};
  for (std::string_view scheme : {"http://", "https://"}) {
    if (target.substr(0, scheme.size()) != scheme) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    if (target.empty()) target = "/";
    break;
  }
  if (target.empty() || (target.front() != '/' && target.front() != '?')) {
    return refuse("must start with '/'");
  }
  if (target.find('#') != std::string_view::npos) return refuse("must not contain '#'");
  const std::size_t question = std::min(target.find('?'), target.size());
  RequestTarget out;
  out.query = target.substr(std::min(question + 1, target.size()));
  std::optional<std::string> path = percent_decode(target.substr(0, question));
  if (!path) return refuse("'%' must be followed by two hexadecimal digits");
  out.path = path->empty() ? "/" : std::move(*path);
  if (std::any_of(out.path.begin(), out.path.end(), is_control) ||
      std::any_of(out.query.begin(), out.query.end(), is_control)) {
    return refuse("contains a control character");
  }
  return out;
}

Result<bool> is_private_or_encrypted(const std::string& url) {
  FLOTILLA_TRY(const WsUrl parsed, parse_ws_url(url));
  return parsed.secure || is_loopback(parsed.host);
}

}  // namespace flotilla::net
