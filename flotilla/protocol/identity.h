// Long-lived Ed25519 identities of coordinators and nodes.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"

namespace flotilla::protocol {

// 32 bytes with a meaning. On the wire and in files: base64url.
template <class Tag>
struct Key32 {
  std::array<std::uint8_t, 32> bytes{};
  auto operator<=>(const Key32&) const = default;
};
using PublicKey = Key32<struct PublicKeyTag>;        // Ed25519
using EphemeralKey = Key32<struct EphemeralKeyTag>;  // X25519, public half
using Seed = Key32<struct SeedTag>;                  // secret from which an Ed25519 pair is derived
using Signature = std::array<std::uint8_t, 64>;

std::string to_text(const PublicKey& key);
Result<PublicKey> public_key_from_text(std::string_view text);
// First 16 hex digits of the key's SHA-256: how people compare keys, and the ProviderId of a node.
std::string fingerprint(const PublicKey& key);
ProviderId provider_id(const PublicKey& key);

// A key pair. The secret half is wiped on destruction and never leaves this class except into its
// file.
class Identity {
 public:
  static Identity generate();
  static Identity from_seed(const Seed& seed);
  // Reads the key from `path`, or creates it there with mode 0600. Refuses a file that others may
  // read.
  static Result<Identity> load_or_create(const std::string& path);
  ~Identity();
  Identity(const Identity&) = default;
  Identity& operator=(const Identity&) = default;

  const PublicKey& public_key() const { return public_key_; }
  Signature sign(std::string_view message) const;

 private:
  Identity() = default;
  Seed seed_;
  std::array<std::uint8_t, 64> secret_key_{};
  PublicKey public_key_;
};

bool verify(const PublicKey& key, std::string_view message, const Signature& signature);

Seed random_seed();
JobId random_job_id();
std::string to_hex(const JobId& id);

// The id of the `index`-th tool call of a job. The same on every attempt, so that a resumed stream
// keeps its ids.
std::string tool_call_id(const JobId& job, std::uint32_t index);

}  // namespace flotilla::protocol
