// Between message structs and the bodies of frames.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::protocol {

struct Encoded {
  std::uint8_t kind = 0;
  std::string body;
};

// Refuses (kTooLarge, names the field) what a receiver would refuse.
Result<Encoded> encode(const HandshakeMessage& message);
Result<Encoded> encode(const ProviderMessage& message);
Result<Encoded> encode(const CoordinatorMessage& message);

// Faults: kUnexpectedMessage for a kind that this side never receives, kFrameOversized over the
// kind's own limit, kMalformedMessage naming the field for the rest. Unknown fields are ignored,
// missing ones keep their defaults.
Result<HandshakeMessage> decode_handshake(std::uint8_t kind, std::string_view body);
Result<ProviderMessage> decode_provider(std::uint8_t kind, std::string_view body);
Result<CoordinatorMessage> decode_coordinator(std::uint8_t kind, std::string_view body);

// "heartbeat"; "unknown" for a number that has no message.
std::string_view kind_name(std::uint8_t kind);
// Largest body of a kind; 0 for an unknown one.
std::size_t max_body_bytes(std::uint8_t kind);

}  // namespace flotilla::protocol
