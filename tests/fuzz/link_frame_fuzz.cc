// Link frames as an attacker or a broken peer would send them. The first byte picks the entrance;
// the rest is the frame, the body or the message of the handshake. What decodes must encode again,
// and mean the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/protocol/codec.h"
#include "flotilla/protocol/handshake.h"
#include "flotilla/protocol/join_token.h"
#include "flotilla/protocol/sealed_channel.h"

namespace {

using namespace flotilla;
using namespace flotilla::protocol;

void require(bool condition) {
  if (!condition) std::abort();
}

template <class Variant>
void check_again(const Result<Variant>& decoded,
                 Result<Variant> (*decode)(std::uint8_t, std::string_view)) {
  if (!decoded.ok()) return;
  auto first = encode(*decoded);
  // Only a body that shrank below its limit by spelling may grow over it when written out.
  if (!first.ok()) {
    require(first.error().code == ErrorCode::kTooLarge);
    return;
  }
  auto again = decode(first->kind, first->body);
  require(again.ok());
  auto second = encode(*again);
  require(second.ok());
  // Boost.JSON 1.81 reads a double to within one unit of its last place, so a body with one may
  // change once more.
  const bool has_doubles = first->kind == Prepare::kKind || first->kind == Heartbeat::kKind;
  require(has_doubles || second->body == first->body);
}

Seed seed_of(std::uint8_t byte) {
  Seed seed;
  seed.bytes.fill(byte);
  return seed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint8_t entrance = data[0];
  const std::uint8_t kind = data[1];
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  static const FakeClock clock;
  static const Identity coordinator = Identity::from_seed(seed_of(1));
  static const Identity node = Identity::from_seed(seed_of(2));
  switch (entrance % 7) {
    case 0:
      check_again(decode_provider(kind, rest), decode_provider);
      break;
    case 1:
      check_again(decode_coordinator(kind, rest), decode_coordinator);
      break;
    case 2:
      check_again(decode_handshake(kind, rest), decode_handshake);
      break;
    case 3: {  // never sealed by anyone
      SealedChannel channel(SessionKeys{}, clock);
      (void)channel.open(rest);
      break;
    }
    case 4: {            // sealed, then changed at one place
      SessionKeys keys;  // the same both ways
      SealedChannel sender(keys, clock), receiver(keys, clock);
      const std::string_view body = rest.substr(0, max_body_bytes(kind));
      std::string frame = sender.seal(kind, {}, 1, body);
      if (entrance >= 128 && !rest.empty()) {
        const std::size_t at = static_cast<std::uint8_t>(rest[0]) % frame.size();
        frame[at] = static_cast<char>(frame[at] ^ 0x40);
        require(!receiver.open(frame).ok());
      } else {
        auto opened = receiver.open(frame);
        require(opened.ok() == (max_body_bytes(kind) >= body.size()));
        if (opened.ok()) require(opened->body == body);
      }
      break;
    }
    case 5: {
      CoordinatorHandshake handshake(coordinator);
      if (handshake.on_hello(rest, false).ok()) {
        KnownNode known{"n", node.public_key(), std::nullopt, false};
        require(handshake.offer(known).ok());
        require(!handshake.on_proof(rest, true).ok());
      }
      break;
    }
    default: {
      NodeHandshake handshake({"n", node, coordinator.public_key(), seed_of(3), "fuzz"});
      require(!handshake.on_message(rest, true).ok());
      auto token = join_token_from_text(rest);
      if (token.ok()) require(to_text(*token).ok());
      break;
    }
  }
  return 0;
}
