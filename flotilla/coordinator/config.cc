#include "flotilla/coordinator/config.h"

#include <charconv>

#include "flotilla/coordinator/admin/admin_access.h"
#include "flotilla/log/log.h"
#include "flotilla/serving/cors.h"

namespace flotilla::coordinator {

bool ListenAddress::is_loopback() const {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

Result<ListenAddress> parse_listen_address(const std::string& text) {
  const Error bad{
      ErrorCode::kInvalidArgument,
      "'" + text +
          "' is not an address to listen on; write HOST:PORT, e.g. 127.0.0.1:8080 or [::1]:8080"};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  ListenAddress address;
  address.host = text.substr(0, colon);
  if (address.host.front() == '[') {
    if (address.host.size() < 4 || address.host.back() != ']') return bad;
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find(':') != std::string::npos) {
    return bad;
  }
  const char* first = text.data() + colon + 1;
  const char* last = text.data() + text.size();
  const auto parsed = std::from_chars(first, last, address.port);
  if (first == last || parsed.ec != std::errc{} || parsed.ptr != last) return bad;
  return address;
}

Result<WarmMode> warm_mode(const CoordinatorConfig& config) {
  if (config.warm_pool == "off") return WarmMode::kOff;
  if (config.warm_pool == "load") return WarmMode::kLoad;
  if (config.warm_pool == "swap") return WarmMode::kSwap;
  return Error{ErrorCode::kInvalidArgument,
               "warm_pool is '" + config.warm_pool + "'; it is off, load or swap"};
}

Result<gates::Modes> gate_modes(const CoordinatorConfig& config) {
  gates::Modes modes;
  const auto read = [](const std::string& name, const std::string& text,
                       gates::Mode& mode) -> Status {
    for (const gates::Mode known : {gates::Mode::kOff, gates::Mode::kShadow, gates::Mode::kOn}) {
      if (text != to_string(known)) continue;
      mode = known;
      return ok_status();
    }
    return Error{ErrorCode::kInvalidArgument,
                 "gates." + name + " is '" + text + "'; it is off, shadow or on"};
  };
  FLOTILLA_TRY_STATUS(read("hardware", config.hardware_gate, modes.hardware));
  FLOTILLA_TRY_STATUS(read("load", config.load_gate, modes.load));
  FLOTILLA_TRY_STATUS(read("state", config.state_gate, modes.state));
  return modes;
}

Status validate(const CoordinatorConfig& config) {
  if (config.tls_certificate_file.empty() != config.tls_key_file.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "tls.certificate_file and tls.key_file go together; only one of them is set"};
  }
  if (config.identity_file.empty() && config.database.find("://") != std::string::npos) {
    return Error{
        ErrorCode::kInvalidArgument,
        "with a database on a server, identity_file says where this coordinator's own key is"};
  }
  std::vector<std::string> addresses{config.listen};
  if (!config.link_listen.empty()) addresses.push_back(config.link_listen);
  for (const std::string& text : addresses) {
    FLOTILLA_TRY(const ListenAddress address, parse_listen_address(text));
    if (!config.has_tls() && !config.insecure && !address.is_loopback()) {
      return Error{
          ErrorCode::kInvalidArgument,
          "listening on " + text +
              " without TLS would show keys and prompts to the network; set "
              "tls.certificate_file and tls.key_file, listen on 127.0.0.1, or say --insecure"};
    }
  }
  for (const std::string& origin : config.allowed_origins) {
    FLOTILLA_TRY_STATUS(serving::check_origin(origin));
  }
  if (auto mode = warm_mode(config); !mode.ok()) return std::move(mode).error();
  if (auto modes = gate_modes(config); !modes.ok()) return std::move(modes).error();
  if (auto key = read_admin_key(config.admin_key); !key.ok()) return std::move(key).error();
  if (config.catalog_downloads != "keys" && config.catalog_downloads != "admin") {
    return Error{ErrorCode::kInvalidArgument,
                 "catalog.downloads is '" + config.catalog_downloads + "'; it is keys or admin"};
  }
  auto level = log::parse_level(config.log_level);
  if (!level.ok()) return std::move(level).error();
  if (config.log_format != "text" && config.log_format != "json") {
    return Error{ErrorCode::kInvalidArgument,
                 "log_format '" + config.log_format + "' is neither text nor json"};
  }
  return ok_status();
}

}  // namespace flotilla::coordinator
