#include <sodium.h>

#include <cstring>

#include "flotilla/protocol/handshake.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/sodium_init.h"

namespace flotilla::protocol {

KeyShare::KeyShare() {
  init_sodium();
  crypto_kx_keypair(public_.bytes.data(), secret_.data());
}

KeyShare::~KeyShare() { sodium_memzero(secret_.data(), secret_.size()); }

Result<SessionKeys> KeyShare::derive(const EphemeralKey& other, std::string_view transcript,
                                     bool is_node) const {
  std::array<std::uint8_t, 32> shared{};
  if (crypto_scalarmult(shared.data(), secret_.data(), other.bytes.data()) != 0) {
    return link_error(LinkFault::kBadSignature, "the other side's key share is not usable");
  }
  // Keyed by the shared secret, over everything both sides said: keys agree only where the
  // transcripts do.
  std::array<std::uint8_t, 64> both{};
  crypto_generichash(both.data(), both.size(),
                     reinterpret_cast<const unsigned char*>(transcript.data()), transcript.size(),
                     shared.data(), shared.size());
  SessionKeys keys;
  auto& to_coordinator = is_node ? keys.send : keys.receive;
  auto& to_node = is_node ? keys.receive : keys.send;
  std::memcpy(to_coordinator.data(), both.data(), 32);
  std::memcpy(to_node.data(), both.data() + 32, 32);
  sodium_memzero(shared.data(), shared.size());
  sodium_memzero(both.data(), both.size());
  return keys;
}

}  // namespace flotilla::protocol
