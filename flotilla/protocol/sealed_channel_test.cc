#include "flotilla/protocol/sealed_channel.h"

#include <gtest/gtest.h>

#include <memory>

#include "flotilla/protocol/link_error.h"

namespace flotilla::protocol {
namespace {

struct Pair {
  explicit Pair(RekeyLimits node_limits = {}, RekeyLimits coordinator_limits = {}) {
    SessionKeys keys;
    for (std::size_t i = 0; i < 32; ++i) {
      keys.send[i] = static_cast<std::uint8_t>(i);
      keys.receive[i] = static_cast<std::uint8_t>(100 + i);
    }
    SessionKeys other;
    other.send = keys.receive;
    other.receive = keys.send;
    node = std::make_unique<SealedChannel>(keys, clock, node_limits);
    coordinator = std::make_unique<SealedChannel>(other, clock, coordinator_limits);
  }
  FakeClock clock;
  std::unique_ptr<SealedChannel> node, coordinator;
};

std::string beat(SealedChannel& channel, std::string_view body = "{}") {
  return channel.seal(Heartbeat::kKind, {}, 0, body);
}

LinkFault fault_of(const Result<Frame>& frame) {
  EXPECT_FALSE(frame.ok());
  if (frame.ok()) return LinkFault::kBadJoinToken;
  EXPECT_TRUE(link_fault(frame.error()).has_value()) << to_string(frame.error());
  return link_fault(frame.error()).value_or(LinkFault::kBadJoinToken);
}

TEST(SealedChannel, CarriesHeaderAndBodyBothWays) {
  Pair pair;
  const JobId job = random_job_id();
  for (int i = 0; i < 5; ++i) {
    const std::string frame = pair.node->seal(Lease::kKind, job, 7, "body");
    EXPECT_EQ(frame.find("body"), std::string::npos);
    EXPECT_EQ(frame.size(), kHeaderBytes + 4 + 16);
    auto opened = pair.coordinator->open(frame);
    ASSERT_TRUE(opened.ok());
    EXPECT_EQ(opened->body, "body");
    EXPECT_EQ(opened->header.job, job);
    EXPECT_EQ(opened->header.attempt, 7u);
    EXPECT_EQ(opened->header.sequence, static_cast<std::uint32_t>(i));
    ASSERT_TRUE(pair.node->open(pair.coordinator->seal(Cancel::kKind, job, 7, "{}")).ok());
  }
}

TEST(SealedChannel, TheHeaderIsLittleEndian) {
  Pair pair;
  JobId job;
  job.bytes.fill(0xAB);
  const std::string frame = pair.node->seal(Lease::kKind, job, 0x01020304, "x");
  EXPECT_EQ(frame.substr(0, 8), std::string("\x01\x21\0\0\x11\0\0\0", 8));
  EXPECT_EQ(frame.substr(8, 16), std::string(16, '\xAB'));
  EXPECT_EQ(frame.substr(24, 8), std::string("\x04\x03\x02\x01\0\0\0\0", 8));
}

TEST(SealedChannel, AnyChangedBitIsNoticed) {
  const std::size_t size = [] {
    Pair pair;
    return beat(*pair.node).size();
  }();
  for (std::size_t bit = 0; bit < size * 8; ++bit) {
    Pair pair;
    std::string frame = beat(*pair.node);
    frame[bit / 8] = static_cast<char>(frame[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(pair.coordinator->open(frame).ok()) << bit;
  }
}

TEST(SealedChannel, ATamperedBodyAndATamperedHeaderAreRefusedByName) {
  for (const std::size_t at : {kHeaderBytes, std::size_t{2}, std::size_t{9}, std::size_t{24}}) {
    Pair pair;
    std::string frame = beat(*pair.node);
    frame[at] = static_cast<char>(frame[at] ^ 2);
    EXPECT_EQ(fault_of(pair.coordinator->open(frame)), LinkFault::kFrameTampered) << at;
  }
}

TEST(SealedChannel, AReplayedFrameIsRefusedByName) {
  Pair pair;
  const std::string frame = beat(*pair.node);
  ASSERT_TRUE(pair.coordinator->open(frame).ok());
  EXPECT_EQ(fault_of(pair.coordinator->open(frame)), LinkFault::kFrameReplayed);
}

TEST(SealedChannel, AReplayUnderAForgedSequenceDoesNotOpen) {
  Pair pair;
  std::string frame = beat(*pair.node);
  ASSERT_TRUE(pair.coordinator->open(frame).ok());
  frame[28] = 1;
  EXPECT_EQ(fault_of(pair.coordinator->open(frame)), LinkFault::kFrameTampered);
}

TEST(SealedChannel, ReorderedAndSkippedFramesAreRefused) {
  Pair pair;
  beat(*pair.node);
  EXPECT_EQ(fault_of(pair.coordinator->open(beat(*pair.node))), LinkFault::kFrameReplayed);
}

TEST(SealedChannel, AFrameReflectedToItsSenderDoesNotOpen) {
  Pair pair;
  EXPECT_EQ(fault_of(pair.node->open(beat(*pair.node))), LinkFault::kFrameTampered);
}

TEST(SealedChannel, AFaultShutsTheChannelForGood) {
  Pair pair;
  std::string bad = beat(*pair.node);
  const std::string good = bad;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  EXPECT_EQ(fault_of(pair.coordinator->open(bad)), LinkFault::kFrameTampered);
  EXPECT_EQ(fault_of(pair.coordinator->open(good)), LinkFault::kFrameTampered);
}

TEST(SealedChannel, TruncatedOversizedAndForeignVersionsAreRefusedByName) {
  const std::string frame = [] {
    Pair pair;
    return beat(*pair.node);
  }();
  for (std::size_t n = 0; n < frame.size(); ++n) {
    Pair pair;
    EXPECT_EQ(fault_of(pair.coordinator->open(frame.substr(0, n))), LinkFault::kFrameTruncated)
        << n;
  }
  {
    Pair pair;
    EXPECT_EQ(fault_of(pair.coordinator->open(frame + "x")), LinkFault::kFrameOversized);
  }
  {
    Pair pair;  // larger than its kind allows, before anything is deciphered
    std::string big = frame;
    big.resize(kHeaderBytes + 16 + max_body_bytes(Heartbeat::kKind) + 1);
    const auto length = static_cast<std::uint32_t>(big.size() - kHeaderBytes);
    for (unsigned i = 0; i < 4; ++i) big[4 + i] = static_cast<char>(length >> (8 * i));
    EXPECT_EQ(fault_of(pair.coordinator->open(big)), LinkFault::kFrameOversized);
  }
  for (const char version : {'\0', '\2'}) {
    Pair pair;
    std::string other = frame;
    other[0] = version;
    EXPECT_EQ(fault_of(pair.coordinator->open(other)), LinkFault::kVersionMismatch);
  }
}

TEST(SealedChannel, KeysChangeAfterTheirFramesAndBothSidesFollow) {
  const RekeyLimits limits{.max_frames = 3, .max_age = std::chrono::hours(1)};
  Pair pair(limits, limits);
  for (int i = 1; i <= 20; ++i) {
    auto opened = pair.coordinator->open(beat(*pair.node));
    ASSERT_TRUE(opened.ok()) << i;
    EXPECT_EQ(opened->header.flags, i % 3 == 0 ? kFlagRekey : 0) << i;
    ASSERT_TRUE(pair.node->open(pair.coordinator->seal(Cancel::kKind, {}, 0, "{}")).ok());
  }
}

TEST(SealedChannel, KeysChangeAfterTheirHour) {
  Pair pair;
  EXPECT_EQ(pair.coordinator->open(beat(*pair.node))->header.flags, 0);
  pair.clock.advance(std::chrono::minutes(59));
  EXPECT_EQ(pair.coordinator->open(beat(*pair.node))->header.flags, 0);
  pair.clock.advance(std::chrono::minutes(1));
  EXPECT_EQ(pair.coordinator->open(beat(*pair.node))->header.flags, kFlagRekey);
  auto next = pair.coordinator->open(beat(*pair.node));
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->header.flags, 0);
}

TEST(SealedChannel, ASenderThatKeepsItsKeyTooLongIsRefused) {
  Pair pair({.max_frames = 100, .max_age = std::chrono::hours(1)},
            {.max_frames = 3, .max_age = std::chrono::hours(1)});
  ASSERT_TRUE(pair.coordinator->open(beat(*pair.node)).ok());
  ASSERT_TRUE(pair.coordinator->open(beat(*pair.node)).ok());
  EXPECT_EQ(fault_of(pair.coordinator->open(beat(*pair.node))), LinkFault::kKeyExhausted);
}

TEST(SealedChannel, MessagesAreSealedAndDecodedWhole) {
  Pair pair;
  const JobId job = random_job_id();
  Lease lease;
  lease.prompt_tokens = 12;
  auto frame = pair.node->seal_message(ProviderMessage(lease), job, 2);
  ASSERT_TRUE(frame.ok());
  auto opened = pair.coordinator->open(*frame);
  ASSERT_TRUE(opened.ok());
  auto message = decode_provider(opened->header.kind, opened->body);
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(std::get<Lease>(*message).prompt_tokens, 12u);
  ModelStatus status;
  status.model.assign(999, 'x');
  EXPECT_EQ(pair.node->seal_message(ProviderMessage(status)).error().code, ErrorCode::kTooLarge);
  // The refused message used no number.
  EXPECT_TRUE(pair.coordinator->open(beat(*pair.node)).ok());
}

}  // namespace
}  // namespace flotilla::protocol
