// Small pieces that server commands share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"

namespace flotilla::apps {

struct ListenAddress {
  std::string host;
  std::uint16_t port = 0;
  bool is_loopback() const;
};

// "127.0.0.1:8080", "[::1]:8080", "localhost:0", ":8080" (all addresses).
Result<ListenAddress> parse_listen_address(std::string_view text);

Status configure_log(const std::string& level, const std::string& format);

}  // namespace flotilla::apps
