#include "flotilla/protocol/link_error.h"

#include <array>
#include <string>

namespace flotilla::protocol {
namespace {

struct Row {
  LinkFault fault;
  std::string_view name;
  ErrorCode code;
};

constexpr std::array kRows{
    Row{LinkFault::kFrameTruncated, "frame_truncated", ErrorCode::kDataLoss},
    Row{LinkFault::kFrameOversized, "frame_oversized", ErrorCode::kTooLarge},
    Row{LinkFault::kFrameTampered, "frame_tampered", ErrorCode::kDataLoss},
    Row{LinkFault::kFrameReplayed, "frame_replayed", ErrorCode::kDataLoss},
    Row{LinkFault::kKeyExhausted, "key_exhausted", ErrorCode::kDataLoss},
    Row{LinkFault::kMalformedMessage, "malformed_message", ErrorCode::kInvalidArgument},
    Row{LinkFault::kUnexpectedMessage, "unexpected_message", ErrorCode::kInvalidArgument},
    Row{LinkFault::kVersionMismatch, "version_mismatch", ErrorCode::kUnsupported},
    Row{LinkFault::kWrongCoordinatorKey, "wrong_coordinator_key", ErrorCode::kPermissionDenied},
    Row{LinkFault::kUninvitedNode, "uninvited_node", ErrorCode::kPermissionDenied},
    Row{LinkFault::kRevokedNode, "revoked_node", ErrorCode::kPermissionDenied},
    Row{LinkFault::kWrongNodeKey, "wrong_node_key", ErrorCode::kPermissionDenied},
    Row{LinkFault::kBadInvite, "bad_invite", ErrorCode::kPermissionDenied},
    Row{LinkFault::kBadSignature, "bad_signature", ErrorCode::kUnauthenticated},
    Row{LinkFault::kBadJoinToken, "bad_join_token", ErrorCode::kInvalidArgument},
};

const Row& row(LinkFault fault) { return kRows[static_cast<std::size_t>(fault)]; }

}  // namespace

std::string_view to_string(LinkFault fault) { return row(fault).name; }

std::optional<LinkFault> link_fault_from_string(std::string_view name) {
  for (const Row& r : kRows) {
    if (r.name == name) return r.fault;
  }
  return std::nullopt;
}

Error link_error(LinkFault fault, std::string_view detail) {
  return Error{row(fault).code, std::string(row(fault).name) + ": " + std::string(detail),
               std::string(row(fault).name)};
}

std::optional<LinkFault> link_fault(const Error& error) {
  return link_fault_from_string(error.param);
}

}  // namespace flotilla::protocol
