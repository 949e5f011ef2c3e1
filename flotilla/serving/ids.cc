#include "flotilla/serving/ids.h"

#include <array>
#include <cstdint>
#include <random>

#include "flotilla/base/text.h"

namespace flotilla::serving {

std::string random_id(std::string_view prefix) {
  thread_local std::random_device device;
  std::array<std::uint8_t, 16> bytes;
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    const std::uint32_t word = device();
    for (std::size_t k = 0; k < 4; ++k) bytes[i + k] = static_cast<std::uint8_t>(word >> (8 * k));
  }
  return std::string(prefix) + to_hex(bytes);
}

bool is_request_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == ':' || c == '-';
    if (!ok) return false;
  }
  return true;
}

}  // namespace flotilla::serving
