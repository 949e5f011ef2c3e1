// What the message structs share: versions, limits, errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "flotilla/base/error.h"

namespace flotilla::protocol {

inline constexpr std::uint8_t kProtocolVersion = 1;
inline constexpr std::uint8_t kOldestProtocolVersion = 1;

// Limits shared by several messages.
inline constexpr std::size_t kMaxName = 128;
inline constexpr std::size_t kMaxSentence = 2048;
inline constexpr std::size_t kMaxModels = 256;
inline constexpr std::size_t kMaxBigBody = 64u << 20;  // a prompt with pictures

struct WireError {
  ErrorCode code = ErrorCode::kInternal;
  std::string message = {};
  std::string param = {};
  bool operator==(const WireError&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("code", m.code);
    v("message", m.message, kMaxSentence);
    v("param", m.param, kMaxName);
  }
};
// Shortens and repairs the message so that it always fits the wire.
WireError to_wire(const Error& error);
Error from_wire(const WireError& error);

}  // namespace flotilla::protocol
