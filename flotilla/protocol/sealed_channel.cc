#include "flotilla/protocol/sealed_channel.h"

#include <sodium.h>

#include "flotilla/base/check.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/messages.h"
#include "flotilla/protocol/sodium_init.h"

namespace flotilla::protocol {
namespace {

constexpr std::size_t kTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
using Nonce = std::array<std::uint8_t, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES>;

Nonce nonce_of(std::uint64_t counter) {
  Nonce nonce{};
  for (unsigned i = 0; i < 8; ++i) nonce[i] = static_cast<std::uint8_t>(counter >> (8 * i));
  return nonce;
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

SessionKeys::~SessionKeys() {
  sodium_memzero(send.data(), send.size());
  sodium_memzero(receive.data(), receive.size());
}

SealedChannel::Direction::~Direction() { sodium_memzero(key.data(), key.size()); }

void SealedChannel::Direction::next_key() {
  static constexpr std::string_view kLabel = "flotilla link next key";
  std::array<std::uint8_t, 32> next{};
  crypto_generichash(next.data(), next.size(), bytes_of(kLabel), kLabel.size(), key.data(),
                     key.size());
  key = next;
  sodium_memzero(next.data(), next.size());
  frames_under_key = 0;
}

SealedChannel::SealedChannel(const SessionKeys& keys, const Clock& clock, RekeyLimits limits)
    : clock_(clock), limits_(limits), send_key_since_(clock.now()) {
  init_sodium();
  sending_.key = keys.send;
  receiving_.key = keys.receive;
}

std::string SealedChannel::seal(std::uint8_t kind, const JobId& job, std::uint32_t attempt,
                                std::string_view body) {
  FLOTILLA_CHECK(body.size() <= max_body_bytes(kind),
                 "a frame's body exceeds the limit of its kind");
  const Clock::Instant now = clock_.now();
  const bool last_under_key = sending_.frames_under_key + 1 >= limits_.max_frames ||
                              now - send_key_since_ >= limits_.max_age;
  FrameHeader header;
  header.version = kProtocolVersion;
  header.kind = kind;
  header.flags = last_under_key ? kFlagRekey : 0;
  header.length = static_cast<std::uint32_t>(body.size() + kTagBytes);
  header.job = job;
  header.attempt = attempt;
  header.sequence = static_cast<std::uint32_t>(sending_.counter);
  std::string frame;
  frame.reserve(kHeaderBytes + header.length);
  append_header(frame, header);
  frame.resize(kHeaderBytes + header.length);
  const Nonce nonce = nonce_of(sending_.counter);
  crypto_aead_xchacha20poly1305_ietf_encrypt(
      reinterpret_cast<unsigned char*>(frame.data()) + kHeaderBytes, nullptr, bytes_of(body),
      body.size(), bytes_of(frame), kHeaderBytes, nullptr, nonce.data(), sending_.key.data());
  ++sending_.counter;
  ++sending_.frames_under_key;
  if (last_under_key) {
    sending_.next_key();
    send_key_since_ = now;
  }
  return frame;
}

Result<Frame> SealedChannel::open(std::string_view frame) {
  if (broken_) return *broken_;
  auto opened = open_checked(frame);
  if (!opened.ok()) broken_ = opened.error();
  return opened;
}

Result<Frame> SealedChannel::open_checked(std::string_view bytes) {
  FLOTILLA_TRY(const FrameHeader header, parse_header(bytes));
  if (header.length < kTagBytes) {
    return link_error(LinkFault::kFrameTruncated, "a sealed body has at least 16 bytes");
  }
  if (header.length - kTagBytes > max_body_bytes(header.kind)) {
    return link_error(LinkFault::kFrameOversized, std::string(kind_name(header.kind)) + " of " +
                                                      std::to_string(header.length - kTagBytes) +
                                                      " bytes, limit " +
                                                      std::to_string(max_body_bytes(header.kind)));
  }
  if (header.sequence != static_cast<std::uint32_t>(receiving_.counter)) {
    return link_error(LinkFault::kFrameReplayed,
                      "frame " + std::to_string(header.sequence) + " arrived where " +
                          std::to_string(static_cast<std::uint32_t>(receiving_.counter)) +
                          " was due");
  }
  Frame frame;
  frame.header = header;
  frame.body.resize(header.length - kTagBytes);
  const Nonce nonce = nonce_of(receiving_.counter);
  const int rc = crypto_aead_xchacha20poly1305_ietf_decrypt(
      reinterpret_cast<unsigned char*>(frame.body.data()), nullptr, nullptr,
      bytes_of(bytes) + kHeaderBytes, header.length, bytes_of(bytes), kHeaderBytes, nonce.data(),
      receiving_.key.data());
  if (rc != 0) {
    return link_error(LinkFault::kFrameTampered, "frame " + std::to_string(header.sequence) +
                                                     " does not carry the other side's seal");
  }
  ++receiving_.counter;
  ++receiving_.frames_under_key;
  if ((header.flags & kFlagRekey) != 0) {
    receiving_.next_key();
  } else if (receiving_.frames_under_key >= limits_.max_frames) {
    return link_error(LinkFault::kKeyExhausted,
                      std::to_string(receiving_.frames_under_key) + " frames came under one key");
  }
  return frame;
}

}  // namespace flotilla::protocol
