#include "apps/flotilla/listen_address.h"

#include <charconv>

#include "flotilla/log/log.h"

namespace flotilla::apps {

bool ListenAddress::is_loopback() const {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

Result<ListenAddress> parse_listen_address(std::string_view text) {
  const Error bad{ErrorCode::kInvalidArgument,
                  "listen address '" + std::string(text) + "' must be HOST:PORT"};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad;
  ListenAddress out;
  std::string_view host = text.substr(0, colon);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']') return bad;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad;
  }
  out.host = host.empty() ? "0.0.0.0" : std::string(host);
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc() || end != port.data() + port.size()) return bad;
  return out;
}

Status configure_log(const std::string& level, const std::string& format) {
  FLOTILLA_TRY(const log::Level parsed, log::parse_level(level));
  if (format != "text" && format != "json") {
    return Error{ErrorCode::kInvalidArgument,
                 "log_format must be text or json, not '" + format + "'"};
  }
  log::configure(parsed, format == "json" ? log::Format::kJson : log::Format::kText);
  return ok_status();
}

}  // namespace flotilla::apps
