// What `nodes invite` prints and a node is given: one string, base64url.
#pragma once

#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::protocol {

struct JoinToken {
  static constexpr std::uint32_t kVersion = 1;
  std::uint32_t version = kVersion;
  PublicKey coordinator_key = {};
  std::string node = {};
  Seed secret = {};      // signs the first handshake; the coordinator keeps only its public half
  std::string url = {};  // of the link, "wss://host:port/v1/link"; may be empty
  std::string tls_public_key = {};  // hex SHA-256 pin for a certificate without CA; may be empty
  bool operator==(const JoinToken&) const = default;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v("version", m.version);
    v("coordinator_key", m.coordinator_key);
    v("node", m.node, 128);
    v("secret", m.secret);
    v("url", m.url, 1024);
    v("tls_public_key", m.tls_public_key, 64);
  }
};

// Fails for a bad node name or too long fields.
Result<std::string> to_text(const JoinToken& token);
// kBadJoinToken: not a token, damaged (it carries a checksum), or of a version this program does
// not know.
Result<JoinToken> join_token_from_text(std::string_view text);

// Names of nodes: 1 to 64 of [a-zA-Z0-9._-], starting with a letter or digit.
Status check_node_name(std::string_view name);

}  // namespace flotilla::protocol
