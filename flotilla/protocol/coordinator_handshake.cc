#include <algorithm>

#include "flotilla/base/check.h"
#include "flotilla/protocol/codec.h"
#include "flotilla/protocol/handshake.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/transcript.h"

namespace flotilla::protocol {

CoordinatorHandshake::CoordinatorHandshake(const Identity& identity) : identity_(identity) {}

Result<Hello> CoordinatorHandshake::on_hello(std::string_view message, bool binary) {
  if (step_ != Step::kHello) return link_error(LinkFault::kUnexpectedMessage, "a second hello");
  if (binary)
    return link_error(LinkFault::kUnexpectedMessage, "the first message must be a hello in text");
  if (message.size() > kMaxHandshakeBytes) {
    return link_error(LinkFault::kFrameOversized, "a hello of " + std::to_string(message.size()) +
                                                      " bytes, limit " +
                                                      std::to_string(kMaxHandshakeBytes));
  }
  FLOTILLA_TRY(HandshakeMessage decoded, decode_handshake(Hello::kKind, message));
  hello_ = std::get<Hello>(std::move(decoded));
  if (hello_.max_version < kOldestProtocolVersion || hello_.min_version > kProtocolVersion) {
    return link_error(LinkFault::kVersionMismatch,
                      "the node speaks versions " + std::to_string(hello_.min_version) + " to " +
                          std::to_string(hello_.max_version) + ", this coordinator " +
                          std::to_string(kOldestProtocolVersion) + " to " +
                          std::to_string(kProtocolVersion));
  }
  transcript_ = message;  // until the offer completes it
  step_ = Step::kLookup;
  return hello_;
}

Result<std::string> CoordinatorHandshake::offer(const std::optional<KnownNode>& known) {
  FLOTILLA_CHECK(step_ == Step::kLookup, "offer() follows on_hello()");
  if (!known) {
    return link_error(LinkFault::kUninvitedNode,
                      "no node named '" + hello_.node +
                          "' was invited; run: flotilla-coordinator nodes invite " + hello_.node);
  }
  if (known->revoked) {
    return link_error(LinkFault::kRevokedNode,
                      "the invitation of node '" + hello_.node + "' was revoked");
  }
  if (known->bound_key && *known->bound_key != hello_.public_key) {
    return link_error(LinkFault::kWrongNodeKey,
                      "node '" + hello_.node + "' is bound to key " +
                          fingerprint(*known->bound_key) + ", this one has " +
                          fingerprint(hello_.public_key) +
                          "; revoke and invite it again if its key file was lost");
  }
  known_ = known;
  Offer offer;
  offer.version = std::min<std::uint32_t>(kProtocolVersion, hello_.max_version);
  offer.public_key = identity_.public_key();
  offer.ephemeral_key = share_.public_half();
  offer.needs_invite = !known->bound_key.has_value();
  FLOTILLA_TRY(transcript_, make_transcript(transcript_, offer));
  offer.signature = identity_.sign(labelled(kCoordinatorLabel, transcript_));
  step_ = Step::kProof;
  return plain_frame(offer);
}

Result<bool> CoordinatorHandshake::on_proof(std::string_view message, bool binary) {
  if (step_ != Step::kProof)
    return link_error(LinkFault::kUnexpectedMessage, "a proof out of turn");
  if (!binary) return link_error(LinkFault::kUnexpectedMessage, "a text message after the hello");
  FLOTILLA_TRY(const HandshakeMessage decoded, open_plain_frame(message));
  const auto* proof = std::get_if<Proof>(&decoded);
  if (proof == nullptr)
    return link_error(LinkFault::kUnexpectedMessage, "the node did not answer with a proof");
  if (!verify(hello_.public_key, labelled(kNodeLabel, transcript_), proof->signature)) {
    return link_error(LinkFault::kBadSignature,
                      "the signature of node '" + hello_.node + "' does not match its key");
  }
  const bool first_join = !known_->bound_key.has_value();
  if (first_join &&
      (!proof->invite_signature || !verify(known_->invite_key, labelled(kInviteLabel, transcript_),
                                           *proof->invite_signature))) {
    return link_error(LinkFault::kBadInvite,
                      "node '" + hello_.node + "' does not hold its join token");
  }
  FLOTILLA_TRY(keys_, share_.derive(hello_.ephemeral_key, transcript_, /*is_node=*/false));
  step_ = Step::kDone;
  return first_join;
}

std::string CoordinatorHandshake::reject(const Error& error,
                                         const std::optional<PublicKey>& own_key) {
  auto frame = plain_frame(Reject{to_wire(error), own_key});
  FLOTILLA_CHECK(frame.ok(), "a reject always fits");
  return std::move(*frame);
}

}  // namespace flotilla::protocol
