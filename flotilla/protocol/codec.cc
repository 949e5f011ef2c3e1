#include "flotilla/protocol/codec.h"

#include <algorithm>

#include "flotilla/base/overloaded.h"
#include "flotilla/json/json.h"
#include "flotilla/protocol/fields_json.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/packed_tokens.h"

namespace flotilla::protocol {
namespace {

constexpr std::size_t kDefaultMaxBytes = 64u << 10;
// A request may nest 64 levels (api); the frame adds a few.
constexpr std::size_t kMaxDepth = 72;

template <class M>
constexpr std::size_t max_bytes_of() {
  if constexpr (requires { M::kMaxBytes; }) {
    return M::kMaxBytes;
  } else {
    return kDefaultMaxBytes;
  }
}

template <class M>
Result<Encoded> encode_one(const M& message) {
  auto body = [&] {
    if constexpr (std::is_same_v<M, Tokens>) {
      return pack(message);
    } else {
      return write_json(message);
    }
  }();
  if (!body.ok()) {
    return Error{body.error().code, std::string(M::kType) + ": " + body.error().message};
  }
  if (body->size() > max_bytes_of<M>()) {
    return Error{ErrorCode::kTooLarge,
                 std::string(M::kType) + " of " + std::to_string(body->size()) +
                     " bytes exceeds the limit of " + std::to_string(max_bytes_of<M>())};
  }
  return Encoded{M::kKind, std::move(*body)};
}

template <class M>
Result<M> decode_one(std::string_view body) {
  if (body.size() > max_bytes_of<M>()) {
    return link_error(LinkFault::kFrameOversized,
                      std::string(M::kType) + " of " + std::to_string(body.size()) +
                          " bytes, limit " + std::to_string(max_bytes_of<M>()));
  }
  if constexpr (std::is_same_v<M, Tokens>) {
    return unpack_tokens(body);
  } else {
    auto value = json::parse(body, {.max_bytes = max_bytes_of<M>(), .max_depth = kMaxDepth});
    if (!value.ok()) {
      return link_error(LinkFault::kMalformedMessage,
                        std::string(M::kType) + ": " + value.error().message);
    }
    auto message = read_json<M>(*value, M::kType, ErrorCode::kInvalidArgument);
    if (!message.ok()) return link_error(LinkFault::kMalformedMessage, message.error().message);
    return message;
  }
}

template <class Variant>
struct List;
template <class... Ms>
struct List<std::variant<Ms...>> {
  using Variant = std::variant<Ms...>;

  static Result<Encoded> encode(const Variant& message) {
    return std::visit([](const auto& m) { return encode_one(m); }, message);
  }
  static Result<Variant> decode(std::uint8_t kind, std::string_view body) {
    std::optional<Result<Variant>> out;
    (void)((Ms::kKind == kind && (out.emplace(decode_as<Ms>(body)), true)) || ...);
    if (out) return std::move(*out);
    return link_error(LinkFault::kUnexpectedMessage, "message kind " + std::to_string(kind) + " (" +
                                                         std::string(kind_name(kind)) +
                                                         ") is not expected here");
  }
  static std::string_view name(std::uint8_t kind) {
    std::string_view out;
    (void)((Ms::kKind == kind && (out = Ms::kType, true)) || ...);
    return out;
  }
  static std::size_t max_bytes(std::uint8_t kind) {
    std::size_t out = 0;
    (void)((Ms::kKind == kind && (out = max_bytes_of<Ms>(), true)) || ...);
    return out;
  }

 private:
  template <class M>
  static Result<Variant> decode_as(std::string_view body) {
    auto message = decode_one<M>(body);
    if (!message.ok()) return std::move(message).error();
    return Variant(std::move(*message));
  }
};

}  // namespace

WireError to_wire(const Error& error) {
  WireError wire{error.code, error.message, error.param};
  if (!is_valid_utf8(wire.message)) wire.message = "(the message was not UTF-8)";
  if (!is_valid_utf8(wire.param) || wire.param.size() > kMaxName) wire.param.clear();
  if (wire.message.size() > kMaxSentence) {
    wire.message.resize(kMaxSentence);
    wire.message.resize(wire.message.size() - incomplete_utf8_suffix(wire.message));
  }
  return wire;
}

Error from_wire(const WireError& error) { return Error{error.code, error.message, error.param}; }

Result<Encoded> encode(const HandshakeMessage& message) {
  return List<HandshakeMessage>::encode(message);
}
Result<Encoded> encode(const ProviderMessage& message) {
  return List<ProviderMessage>::encode(message);
}
Result<Encoded> encode(const CoordinatorMessage& message) {
  return List<CoordinatorMessage>::encode(message);
}

Result<HandshakeMessage> decode_handshake(std::uint8_t kind, std::string_view body) {
  return List<HandshakeMessage>::decode(kind, body);
}
Result<ProviderMessage> decode_provider(std::uint8_t kind, std::string_view body) {
  return List<ProviderMessage>::decode(kind, body);
}
Result<CoordinatorMessage> decode_coordinator(std::uint8_t kind, std::string_view body) {
  return List<CoordinatorMessage>::decode(kind, body);
}

std::string_view kind_name(std::uint8_t kind) {
  for (const std::string_view name :
       {List<HandshakeMessage>::name(kind), List<ProviderMessage>::name(kind),
        List<CoordinatorMessage>::name(kind)}) {
    if (!name.empty()) return name;
  }
  return "unknown";
}

std::size_t max_body_bytes(std::uint8_t kind) {
  return std::max({List<HandshakeMessage>::max_bytes(kind), List<ProviderMessage>::max_bytes(kind),
                   List<CoordinatorMessage>::max_bytes(kind)});
}

}  // namespace flotilla::protocol
