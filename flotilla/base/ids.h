// Strong ids. Two kinds never convert into each other.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace flotilla {

// 64-bit id local to a process or database.
template <class Tag>
struct LocalId {
  std::uint64_t value = 0;
  auto operator<=>(const LocalId&) const = default;
};
using RequestId = LocalId<struct RequestTag>;  // one generation inside an engine; never reused
using AccountId = LocalId<struct AccountTag>;
using ApiKeyId = LocalId<struct ApiKeyTag>;

// Random 128-bit id of a job in the whole fleet; never reused.
struct JobId {
  std::array<std::uint8_t, 16> bytes{};
  auto operator<=>(const JobId&) const = default;
};

using TokenId = std::int32_t;  // an entry of a model's vocabulary

// A name with a type.
template <class Tag>
struct NameId {
  std::string value;
  auto operator<=>(const NameId&) const = default;
};
using ProviderId =
    NameId<struct ProviderTag>;           // hex of the SHA-256 of the node's public key, 16 digits
using ModelId = NameId<struct ModelTag>;  // the name that clients use in "model"

}  // namespace flotilla

template <class Tag>
struct std::hash<flotilla::LocalId<Tag>> {
  std::size_t operator()(const flotilla::LocalId<Tag>& id) const noexcept {
    return std::hash<std::uint64_t>()(id.value);
  }
};
template <class Tag>
struct std::hash<flotilla::NameId<Tag>> {
  std::size_t operator()(const flotilla::NameId<Tag>& id) const noexcept {
    return std::hash<std::string>()(id.value);
  }
};
template <>
struct std::hash<flotilla::JobId> {
  std::size_t operator()(const flotilla::JobId& id) const noexcept {
    std::size_t h = 0;  // the bytes are random already
    std::memcpy(&h, id.bytes.data(), sizeof h);
    return h;
  }
};
