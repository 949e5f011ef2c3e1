// What can go wrong on the link between a node and the coordinator, by name. A fault travels as an
// ordinary Error whose `param` is the fault's name, so that logs, tests and the other side can tell
// them apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "flotilla/base/error.h"

namespace flotilla::protocol {

enum class LinkFault : std::uint8_t {
  kFrameTruncated,
  kFrameOversized,
  kFrameTampered,     // the authentication tag does not match
  kFrameReplayed,     // a frame came twice or out of order
  kKeyExhausted,      // the sender used one key for longer than allowed
  kMalformedMessage,  // authentic, but not what its kind promises
  kUnexpectedMessage,
  kVersionMismatch,
  kWrongCoordinatorKey,
  kUninvitedNode,
  kRevokedNode,
  kWrongNodeKey,  // the name is bound to another key
  kBadInvite,     // the first join does not prove the invite
  kBadSignature,
  kBadJoinToken,
};

// "frame_truncated", ...
std::string_view to_string(LinkFault fault);
std::optional<LinkFault> link_fault_from_string(std::string_view name);

Error link_error(LinkFault fault, std::string_view detail);
// The fault that `error` was made from; nullopt for any other error.
std::optional<LinkFault> link_fault(const Error& error);

}  // namespace flotilla::protocol
