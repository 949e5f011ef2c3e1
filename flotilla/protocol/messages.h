// Every message between a node (provider) and the coordinator, declared once. A message is a struct
// named in one of the variants below, with
//   kType      its name in documents, logs and golden files
//   kKind      its number in the frame header; never reused
//   fields()   a visitor over (name, member[, limit]); encoding, decoding, tests and limits follow
// Fields are only added, with defaults; unknown fields are ignored by receivers. The limit is in
// bytes for text and in entries for lists. Meaning and order: docs/protocol.md.
#pragma once

#include <variant>

#include "flotilla/protocol/handshake_messages.h"
#include "flotilla/protocol/job_messages.h"
#include "flotilla/protocol/node_messages.h"
#include "flotilla/protocol/tokens.h"
#include "flotilla/protocol/wire_types.h"

namespace flotilla::protocol {

using HandshakeMessage = std::variant<Hello, Offer, Proof, Reject>;
// What a node sends once the link is sealed.
using ProviderMessage = std::variant<Register, Heartbeat, Progress, Lease, Refuse, Tokens, Finish,
                                     CancelAck, ModelStatus, Drain, Recalled>;
// What the coordinator sends once the link is sealed.
using CoordinatorMessage = std::variant<Registered, HeartbeatAck, Prepare, Start, Cancel, Flow,
                                        Load, Unload, Drain, Reject, Recall>;

}  // namespace flotilla::protocol
