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
  known_ = known;
  Offer offer;
  offer.version = std::min<std::uint32_t>(kProtocolVersion, hello_.max_version);
  offer.public_key = identity_.public_key();
  offer.ephemeral_key = share_.public_half();
  // Whoever does not show the key that the name is bound to is asked for an invitation, whether the
  // name is known or not: a stranger learns nothing about names.
  offer.needs_invite = !shows_bound_key();
  FLOTILLA_TRY(transcript_, make_transcript(transcript_, offer));
  offer.signature = identity_.sign(labelled(kCoordinatorLabel, transcript_));
  step_ = Step::kProof;
  return plain_frame(offer);
}

bool CoordinatorHandshake::shows_bound_key() const {
  return known_ && known_->bound_key && *known_->bound_key == hello_.public_key;
}

// What is wrong with an invitation is told to its holder only: to the machine with the bound key or
// with the token's secret. All others get one and the same answer.
Status CoordinatorHandshake::check_invitation(const Proof& proof) {
  if (!shows_bound_key()) {
    // Also for an unknown name, so that it takes as long.
    const PublicKey& invite_key = known_ ? known_->invite_key : hello_.public_key;
    const bool holds_token =
        proof.invite_signature &&
        verify(invite_key, labelled(kInviteLabel, transcript_), *proof.invite_signature);
    if (!known_ || !holds_token) {
      refusal_detail_ = !known_             ? "the name is unknown"
                        : known_->bound_key ? "the name is bound to another key"
                                            : "the join token is not the one of the invitation";
      return link_error(LinkFault::kUninvitedNode,
                        "no node named '" + hello_.node +
                            "' was invited with this key or join token; run: "
                            "flotilla-coordinator nodes invite " +
                            hello_.node);
    }
  }
  if (known_->revoked) {
    return link_error(LinkFault::kRevokedNode,
                      "the invitation of node '" + hello_.node + "' was revoked");
  }
  if (known_->bound_key && !shows_bound_key()) {
    return link_error(LinkFault::kWrongNodeKey,
                      "node '" + hello_.node + "' is bound to key " +
                          fingerprint(*known_->bound_key) + ", this one has " +
                          fingerprint(hello_.public_key) +
                          "; revoke and invite it again if its key file was lost");
  }
  return ok_status();
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
  FLOTILLA_TRY_STATUS(check_invitation(*proof));
  const bool first_join = !known_->bound_key.has_value();
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
