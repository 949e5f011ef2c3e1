// Names of the enumerations on the wire. A name that a later version added reads as the
// enumeration's first value.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "flotilla/base/error.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::protocol {

template <class E>
struct EnumNames;
template <>
struct EnumNames<RefuseReason> {
  static constexpr std::array<std::string_view, 8> kNames{
      "other",    "busy",      "memory",          "not_loaded",
      "draining", "unhealthy", "invalid_request", "prompt_mismatch"};
};
template <>
struct EnumNames<WireFinishReason> {
  static constexpr std::array<std::string_view, 5> kNames{"error", "stop", "length", "tool_calls",
                                                          "cancelled"};
};
template <>
struct EnumNames<ModelState> {
  static constexpr std::array<std::string_view, 4> kNames{"failed", "loading", "loaded",
                                                          "unloaded"};
};

template <class E>
std::string_view enum_name(E value) {
  return EnumNames<E>::kNames[static_cast<std::size_t>(value)];
}
template <>
inline std::string_view enum_name(ErrorCode value) {
  return flotilla::to_string(value);
}

template <class E>
E enum_value(std::string_view name) {
  for (std::size_t i = 0; i < EnumNames<E>::kNames.size(); ++i) {
    if (EnumNames<E>::kNames[i] == name) return static_cast<E>(i);
  }
  return E{};
}
template <>
inline ErrorCode enum_value(std::string_view name) {
  return error_code_from_string(name);
}

}  // namespace flotilla::protocol
