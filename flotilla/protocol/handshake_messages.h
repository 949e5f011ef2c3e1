// Messages of the handshake; not sealed. Order: handshake.h. How messages are declared: messages.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/protocol/identity.h"
#include "flotilla/protocol/wire_types.h"

namespace flotilla::protocol {

// Node to coordinator, the only text frame of a link.
struct Hello {
  static constexpr std::string_view kType = "hello";
  static constexpr std::uint8_t kKind = 1;
  std::uint32_t min_version = kOldestProtocolVersion;
  std::uint32_t max_version = kProtocolVersion;
  std::string node = {};      // the invited name
  std::string software = {};  // "flotilla 0.1.0"
  PublicKey public_key = {};
  EphemeralKey ephemeral_key = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("min_version", m.min_version);
    v("max_version", m.max_version);
    v("node", m.node, kMaxName);
    v("software", m.software, kMaxName);
    v("public_key", m.public_key);
    v("ephemeral_key", m.ephemeral_key);
  }
};

// Coordinator to node: its identity and share, signed.
struct Offer {
  static constexpr std::string_view kType = "offer";
  static constexpr std::uint8_t kKind = 2;
  std::uint32_t version = kProtocolVersion;  // chosen
  PublicKey public_key = {};
  EphemeralKey ephemeral_key = {};
  bool needs_invite = false;  // the name is not bound to a key yet
  Signature signature{};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("version", m.version);
    v("public_key", m.public_key);
    v("ephemeral_key", m.ephemeral_key);
    v("needs_invite", m.needs_invite);
    v("signature", m.signature);
  }
};

// Node to coordinator: the transcript signed by its identity and, at the first join, by the
// invite's key.
struct Proof {
  static constexpr std::string_view kType = "proof";
  static constexpr std::uint8_t kKind = 3;
  Signature signature{};
  std::optional<Signature> invite_signature = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("signature", m.signature);
    v("invite_signature", m.invite_signature);
  }
};

// Coordinator to node, instead of Offer or Registered: why not. Plain during the handshake, sealed
// after it.
struct Reject {
  static constexpr std::string_view kType = "reject";
  static constexpr std::uint8_t kKind = 4;
  WireError error = {};  // param: name of the LinkFault, if it is one
  // Of the coordinator, in the handshake: a node that dialled the wrong one hears that first.
  std::optional<PublicKey> public_key = {};
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("error", m.error);
    v("public_key", m.public_key);
  }
};

}  // namespace flotilla::protocol
