// How a node and its coordinator come to trust each other and to share keys. State machines without
// I/O, used by both programs and by tests:
//
//   node                                      coordinator
//   Hello (text): name, key, share       ->
//                                        <-   Offer: key, share, signature over the transcript (or
//                                        Reject)
//   Proof: signature [+ invite's]        ->
//                                        <-   sealed frames from here on, Registered first (or
//                                        Reject)
//
// The node accepts one coordinator key, the one in its join token. The coordinator accepts names
// that were invited; at the first join the invite's key must sign too, and from then on the name
// belongs to the node's key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/protocol/identity.h"
#include "flotilla/protocol/messages.h"
#include "flotilla/protocol/sealed_channel.h"

namespace flotilla::protocol {

inline constexpr std::size_t kMaxHandshakeBytes = 4096;  // of any message before the link is sealed

// An X25519 pair for one handshake. The secret is wiped on destruction.
class KeyShare {
 public:
  KeyShare();
  ~KeyShare();
  KeyShare(const KeyShare&) = delete;
  KeyShare& operator=(const KeyShare&) = delete;
  const EphemeralKey& public_half() const { return public_; }
  // kBadSignature for a share that gives no secret (low order).
  Result<SessionKeys> derive(const EphemeralKey& other, std::string_view transcript,
                             bool is_node) const;

 private:
  std::array<std::uint8_t, 32> secret_{};
  EphemeralKey public_;
};

struct NodeCredentials {
  std::string node;  // the invited name
  Identity identity;
  PublicKey coordinator_key;          // pinned
  std::optional<Seed> invite_secret;  // needed until the name is bound
  std::string software;
};

class NodeHandshake {
 public:
  explicit NodeHandshake(NodeCredentials credentials);

  // Send as a text message.
  const std::string& hello() const { return hello_text_; }
  // Takes the coordinator's one answer; returns the binary message to send, after which the link is
  // sealed. Faults: whatever the coordinator named in a Reject, kWrongCoordinatorKey,
  // kBadSignature, kVersionMismatch, kBadInvite, ...
  Result<std::string> on_message(std::string_view message, bool binary);

  bool done() const { return keys_.has_value(); }
  const SessionKeys& keys() const { return *keys_; }  // once done()

 private:
  Error wrong_key(const PublicKey& key) const;

  NodeCredentials credentials_;
  KeyShare share_;
  std::string hello_text_;
  std::optional<SessionKeys> keys_;
};

// What the coordinator knows about a name.
struct KnownNode {
  std::string node;
  PublicKey invite_key;                // public half of the join token's secret
  std::optional<PublicKey> bound_key;  // after the first join
  bool revoked = false;
};

class CoordinatorHandshake {
 public:
  // `identity` must outlive this.
  explicit CoordinatorHandshake(const Identity& identity);

  // 1. The node's first message. Faults: kUnexpectedMessage, kFrameOversized, kMalformedMessage,
  // kVersionMismatch.
  Result<Hello> on_hello(std::string_view message, bool binary);
  // 2. With what is known about hello.node (nullopt: nothing): the Offer to send. The same for
  // names that are known and names that are not.
  Result<std::string> offer(const std::optional<KnownNode>& known);
  // 3. The node's Proof. True when the node must now be bound to hello().public_key, durably,
  // before Registered is sent. Faults: kBadSignature, kUninvitedNode (unknown name, other key,
  // wrong token: all alike), kRevokedNode and kWrongNodeKey for holders of the invitation, and
  // those of frames.
  Result<bool> on_proof(std::string_view message, bool binary);
  // Why it was kUninvitedNode, for the coordinator's own log.
  const std::string& refusal_detail() const { return refusal_detail_; }

  bool done() const { return keys_.has_value(); }
  const SessionKeys& keys() const { return *keys_; }
  const Hello& hello() const { return hello_; }

  // The plain message that tells the node why it was refused.
  static std::string reject(const Error& error,
                            const std::optional<PublicKey>& own_key = std::nullopt);

 private:
  enum class Step { kHello, kLookup, kProof, kDone };
  bool shows_bound_key() const;
  Status check_invitation(const Proof& proof);

  const Identity& identity_;
  KeyShare share_;
  Step step_ = Step::kHello;
  Hello hello_;
  std::string transcript_;
  std::optional<KnownNode> known_;
  std::optional<SessionKeys> keys_;
  std::string refusal_detail_;
};

}  // namespace flotilla::protocol
