// For tests: every message of the three lists with every field set to something other than its
// default.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "flotilla/protocol/fields_json.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::protocol {

class Filler {
 public:
  template <class T>
  void operator()(std::string_view name, T& field, std::size_t = 0) {
    ++n_;
    if constexpr (std::is_same_v<T, bool>) {
      field = !field;
    } else if constexpr (std::is_same_v<T, double>) {
      field = n_ + 0.25;
    } else if constexpr (std::is_enum_v<T>) {
      field = static_cast<T>(field == static_cast<T>(1) ? 2 : 1);
    } else if constexpr (std::is_integral_v<T>) {
      field = static_cast<T>(field + 1000 + n_);
    } else if constexpr (std::is_same_v<T, std::string>) {
      field = std::string(name) + " ä";
    } else if constexpr (std::is_same_v<T, boost::json::value>) {
      field = {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
               {"seed", 18446744073709551615u}};
    } else if constexpr (std::is_same_v<T, Signature>) {
      field.fill(static_cast<std::uint8_t>(n_));
    } else if constexpr (IsKey<T>::value) {
      field.bytes.fill(static_cast<std::uint8_t>(n_));
    } else if constexpr (IsOptional<T>::value) {
      field.emplace();
      (*this)(name, *field);
    } else if constexpr (IsVector<T>::value) {
      field.resize(2);
      for (auto& item : field) (*this)(name, item);
    } else {
      T::fields(field, *this);
    }
  }

 private:
  int n_ = 0;
};

template <class M>
M sample() {
  M message;
  Filler filler;
  M::fields(message, filler);
  return message;
}

template <>
inline Tokens sample<Tokens>() {
  Tokens t;
  t.first_index = 300;
  t.ids = {0, 1, 127, 128, 262'143, -1, 2'147'483'647, -2'147'483'647 - 1};
  t.deltas = {{TextChannel::kContent, "héllo \U0001F600"},
              {TextChannel::kReasoning, ""},
              {TextChannel::kToolCall, "{\"a\":", 3, "call_00", "look_up"},
              {TextChannel::kToolCall, "1}", 3}};
  for (const TokenId id : t.ids) {
    t.logprobs.push_back(
        {id, -0.125 * (id % 7), std::string("\xF0\x9F\0", 3), {{id, -1.5, "a"}, {5, -9999.0, ""}}});
  }
  return t;
}

// Calls f(M{}) for every message type of a variant.
template <class Variant>
struct ForEachMessage;
template <class... Ms>
struct ForEachMessage<std::variant<Ms...>> {
  template <class F>
  static void run(F&& f) {
    (f(sample<Ms>()), ...);
  }
};

}  // namespace flotilla::protocol
