// The sealed half of the link: frames under XChaCha20-Poly1305 with one key per direction. No I/O,
// no threads: the owner of the connection calls it in the order of the wire.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "flotilla/base/clock.h"
#include "flotilla/base/result.h"
#include "flotilla/protocol/codec.h"
#include "flotilla/protocol/frame.h"

namespace flotilla::protocol {

// From the handshake. Wiped on destruction.
struct SessionKeys {
  std::array<std::uint8_t, 32> send{};
  std::array<std::uint8_t, 32> receive{};
  SessionKeys() = default;
  SessionKeys(const SessionKeys&) = default;
  SessionKeys& operator=(const SessionKeys&) = default;
  ~SessionKeys();
};

struct RekeyLimits {
  std::uint64_t max_frames = std::uint64_t{1} << 32;
  std::chrono::nanoseconds max_age = std::chrono::hours(1);
};

// The nonce is the frame's number in its direction, never sent: a frame that comes twice, late, or
// not at all does not open. The sender marks the last frame under a key (kFlagRekey); both sides
// then derive the next key from the present one, which is erased, so that a stolen key does not
// open what was sent before.
class SealedChannel {
 public:
  // `clock` must outlive the channel.
  SealedChannel(const SessionKeys& keys, const Clock& clock, RekeyLimits limits = {});

  // The whole frame for `body`.
  std::string seal(std::uint8_t kind, const JobId& job, std::uint32_t attempt,
                   std::string_view body);

  // Faults: kFrameTruncated, kFrameOversized, kVersionMismatch, kFrameReplayed, kFrameTampered,
  // kKeyExhausted. After a fault the channel stays shut: every later call returns the same fault.
  Result<Frame> open(std::string_view frame);

  std::uint64_t num_sealed() const { return sending_.counter; }
  std::uint64_t num_opened() const { return receiving_.counter; }

  // Encodes and seals. Fails only for a message over its limits.
  template <class Message>
  Result<std::string> seal_message(const Message& message, const JobId& job = {},
                                   std::uint32_t attempt = 0) {
    FLOTILLA_TRY(const Encoded encoded, encode(message));
    return seal(encoded.kind, job, attempt, encoded.body);
  }

 private:
  struct Direction {
    std::array<std::uint8_t, 32> key{};
    std::uint64_t counter = 0;  // of the next frame
    std::uint64_t frames_under_key = 0;
    Direction() = default;
    Direction(const Direction&) = default;
    Direction& operator=(const Direction&) = default;
    ~Direction();
    void next_key();
  };
  Result<Frame> open_checked(std::string_view frame);

  const Clock& clock_;
  RekeyLimits limits_;
  Direction sending_;
  Direction receiving_;
  Clock::Instant send_key_since_;
  std::optional<Error> broken_;
};

}  // namespace flotilla::protocol
