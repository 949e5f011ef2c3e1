#include "flotilla/base/check.h"
#include "flotilla/protocol/codec.h"
#include "flotilla/protocol/handshake.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/transcript.h"

namespace flotilla::protocol {

NodeHandshake::NodeHandshake(NodeCredentials credentials) : credentials_(std::move(credentials)) {
  Hello hello;
  hello.node = credentials_.node;
  hello.software = credentials_.software.substr(0, kMaxName);
  hello.public_key = credentials_.identity.public_key();
  hello.ephemeral_key = share_.public_half();
  auto encoded = encode(HandshakeMessage(hello));
  FLOTILLA_CHECK(encoded.ok(), "the node's name is longer than a join token allows");
  hello_text_ = std::move(encoded->body);
}

Error NodeHandshake::wrong_key(const PublicKey& key) const {
  return link_error(LinkFault::kWrongCoordinatorKey, "the coordinator has key " + fingerprint(key) +
                                                         ", the join token names " +
                                                         fingerprint(credentials_.coordinator_key));
}

Result<std::string> NodeHandshake::on_message(std::string_view message, bool binary) {
  if (done()) return link_error(LinkFault::kUnexpectedMessage, "the handshake is over");
  if (!binary)
    return link_error(LinkFault::kUnexpectedMessage, "a text message from the coordinator");
  FLOTILLA_TRY(const HandshakeMessage answer, open_plain_frame(message));
  if (const auto* reject = std::get_if<Reject>(&answer)) {
    if (reject->public_key && *reject->public_key != credentials_.coordinator_key) {
      return wrong_key(*reject->public_key);
    }
    return from_wire(reject->error);
  }
  const auto* offer = std::get_if<Offer>(&answer);
  if (offer == nullptr) {
    return link_error(LinkFault::kUnexpectedMessage,
                      "the coordinator did not answer with an offer");
  }
  if (offer->version < kOldestProtocolVersion || offer->version > kProtocolVersion) {
    return link_error(LinkFault::kVersionMismatch,
                      "the coordinator chose version " + std::to_string(offer->version));
  }
  if (offer->public_key != credentials_.coordinator_key) {
    return wrong_key(offer->public_key);
  }
  FLOTILLA_TRY(const std::string transcript, make_transcript(hello_text_, *offer));
  if (!verify(offer->public_key, labelled(kCoordinatorLabel, transcript), offer->signature)) {
    return link_error(LinkFault::kBadSignature,
                      "the coordinator's signature does not match its key");
  }
  Proof proof;
  proof.signature = credentials_.identity.sign(labelled(kNodeLabel, transcript));
  if (offer->needs_invite) {
    if (!credentials_.invite_secret) {
      return link_error(LinkFault::kBadInvite, "the coordinator does not know this key of node '" +
                                                   credentials_.node + "': it needs a join token");
    }
    proof.invite_signature =
        Identity::from_seed(*credentials_.invite_secret).sign(labelled(kInviteLabel, transcript));
  }
  FLOTILLA_TRY(std::string frame, plain_frame(proof));
  FLOTILLA_TRY(keys_, share_.derive(offer->ephemeral_key, transcript, /*is_node=*/true));
  return frame;
}

}  // namespace flotilla::protocol
