#include "flotilla/protocol/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "flotilla/protocol/frame.h"
#include "flotilla/protocol/join_token.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/transcript.h"

namespace flotilla::protocol {
namespace {

using ::testing::HasSubstr;

struct Scene {
  Identity coordinator = Identity::generate();
  Identity node = Identity::generate();
  Seed secret = random_seed();
  KnownNode known{"alpha", Identity::from_seed(secret).public_key(), std::nullopt, false};
  NodeCredentials credentials() const {
    return {"alpha", node, coordinator.public_key(), secret, "flotilla test"};
  }
};

LinkFault fault_of(const Error& error) {
  EXPECT_TRUE(link_fault(error).has_value()) << to_string(error);
  return link_fault(error).value_or(LinkFault::kFrameTruncated);
}

// Whole handshake; the first fault of either side.
Status shake(NodeHandshake& node, CoordinatorHandshake& coordinator,
             const std::optional<KnownNode>& known, bool* binds = nullptr) {
  FLOTILLA_TRY(const Hello hello, coordinator.on_hello(node.hello(), false));
  EXPECT_EQ(hello.node, "alpha");
  FLOTILLA_TRY(const std::string offer, coordinator.offer(known));
  FLOTILLA_TRY(const std::string proof, node.on_message(offer, true));
  FLOTILLA_TRY(const bool first, coordinator.on_proof(proof, true));
  if (binds != nullptr) *binds = first;
  return ok_status();
}

TEST(Handshake, FirstJoinBindsTheNodeAndBothSidesShareKeys) {
  Scene s;
  NodeHandshake node(s.credentials());
  CoordinatorHandshake coordinator(s.coordinator);
  bool binds = false;
  ASSERT_TRUE(shake(node, coordinator, s.known, &binds).ok());
  EXPECT_TRUE(binds);
  ASSERT_TRUE(node.done() && coordinator.done());
  EXPECT_EQ(node.keys().send, coordinator.keys().receive);
  EXPECT_EQ(node.keys().receive, coordinator.keys().send);
  EXPECT_NE(node.keys().send, node.keys().receive);
  EXPECT_EQ(coordinator.hello().public_key, s.node.public_key());
}

TEST(Handshake, ABoundNodeJoinsWithoutItsToken) {
  Scene s;
  s.known.bound_key = s.node.public_key();
  NodeCredentials credentials = s.credentials();
  credentials.invite_secret.reset();
  NodeHandshake node(credentials);
  CoordinatorHandshake coordinator(s.coordinator);
  bool binds = true;
  ASSERT_TRUE(shake(node, coordinator, s.known, &binds).ok());
  EXPECT_FALSE(binds);
}

TEST(Handshake, EveryConnectionHasItsOwnKeys) {
  Scene s;
  std::vector<std::array<std::uint8_t, 32>> keys;
  for (int i = 0; i < 2; ++i) {
    NodeHandshake node(s.credentials());
    CoordinatorHandshake coordinator(s.coordinator);
    ASSERT_TRUE(shake(node, coordinator, s.known).ok());
    keys.push_back(node.keys().send);
  }
  EXPECT_NE(keys[0], keys[1]);
}

TEST(Handshake, AnUninvitedNodeIsRefusedByName) {
  Scene s;
  NodeHandshake node(s.credentials());
  CoordinatorHandshake coordinator(s.coordinator);
  const Status status = shake(node, coordinator, std::nullopt);
  EXPECT_EQ(fault_of(status.error()), LinkFault::kUninvitedNode);
  EXPECT_THAT(status.error().message, HasSubstr("no node named 'alpha' was invited"));
  EXPECT_EQ(coordinator.refusal_detail(), "the name is unknown");
}

TEST(Handshake, ARevokedNodeIsRefusedByName) {
  Scene s;
  s.known.revoked = true;
  NodeHandshake node(s.credentials());
  CoordinatorHandshake coordinator(s.coordinator);
  EXPECT_EQ(fault_of(shake(node, coordinator, s.known).error()), LinkFault::kRevokedNode);
}

TEST(Handshake, AnotherMachineWithTheTokenOfABoundNameIsRefused) {
  Scene s;
  s.known.bound_key = Identity::generate().public_key();
  NodeHandshake node(s.credentials());
  CoordinatorHandshake coordinator(s.coordinator);
  EXPECT_EQ(fault_of(shake(node, coordinator, s.known).error()), LinkFault::kWrongNodeKey);
}

TEST(Handshake, ABoundNodeIsToldOfItsRevocationWithoutAToken) {
  Scene s;
  s.known.bound_key = s.node.public_key();
  s.known.revoked = true;
  NodeCredentials credentials = s.credentials();
  credentials.invite_secret.reset();
  NodeHandshake node(credentials);
  CoordinatorHandshake coordinator(s.coordinator);
  EXPECT_EQ(fault_of(shake(node, coordinator, s.known).error()), LinkFault::kRevokedNode);
}

// Without a secret of the invitation, what comes back is the same for every state of a name.
TEST(Handshake, AStrangerCannotTellKnownNamesFromOthers) {
  Scene s;
  std::vector<std::optional<KnownNode>> states(5, s.known);
  states[0].reset();
  states[2]->bound_key = Identity::generate().public_key();
  states[3]->revoked = true;
  states[4]->bound_key = states[2]->bound_key;
  states[4]->revoked = true;
  for (const bool has_token : {true, false}) {
    std::set<std::string> answers;
    for (const auto& known : states) {
      NodeCredentials stranger = s.credentials();
      stranger.invite_secret = random_seed();
      NodeHandshake node(stranger);
      CoordinatorHandshake coordinator(s.coordinator);
      ASSERT_TRUE(coordinator.on_hello(node.hello(), false).ok());
      const auto offer = coordinator.offer(known);
      ASSERT_TRUE(offer.ok());
      EXPECT_THAT(*offer, HasSubstr("\"needs_invite\":true"));
      auto proof = node.on_message(*offer, true);
      ASSERT_TRUE(proof.ok());
      if (!has_token) {  // a client of its own making leaves the signature out
        auto bare = open_plain_frame(*proof);
        ASSERT_TRUE(bare.ok());
        std::get<Proof>(*bare).invite_signature.reset();
        proof = plain_frame(std::get<Proof>(*bare));
        ASSERT_TRUE(proof.ok());
      }
      const auto refused = coordinator.on_proof(*proof, true);
      ASSERT_FALSE(refused.ok());
      answers.insert(to_string(refused.error()));
    }
    EXPECT_EQ(answers.size(), 1u);
  }
}

TEST(Handshake, AFirstJoinWithoutTheRightSecretIsRefused) {
  Scene s;
  NodeCredentials wrong = s.credentials();
  wrong.invite_secret = random_seed();
  NodeHandshake node(wrong);
  CoordinatorHandshake coordinator(s.coordinator);
  EXPECT_EQ(fault_of(shake(node, coordinator, s.known).error()), LinkFault::kUninvitedNode);

  NodeCredentials none = s.credentials();
  none.invite_secret.reset();
  NodeHandshake bare(none);
  CoordinatorHandshake again(s.coordinator);
  EXPECT_EQ(fault_of(shake(bare, again, s.known).error()), LinkFault::kBadInvite);
}

TEST(Handshake, AWrongCoordinatorKeyIsRefusedByTheNode) {
  Scene s;
  const Identity other = Identity::generate();
  NodeHandshake node(s.credentials());
  CoordinatorHandshake coordinator(other);
  const Status status = shake(node, coordinator, s.known);
  EXPECT_EQ(fault_of(status.error()), LinkFault::kWrongCoordinatorKey);
  EXPECT_THAT(status.error().message, HasSubstr(fingerprint(other.public_key())));
  EXPECT_THAT(status.error().message, HasSubstr(fingerprint(s.coordinator.public_key())));
}

TEST(Handshake, ARejectFromAnotherCoordinatorIsReportedAsTheWrongKey) {
  Scene s;
  NodeHandshake node(s.credentials());
  const Error uninvited = link_error(LinkFault::kUninvitedNode, "no node named 'alpha'");
  const auto told = [&](const PublicKey& key) {
    return fault_of(node.on_message(CoordinatorHandshake::reject(uninvited, key), true).error());
  };
  EXPECT_EQ(told(Identity::generate().public_key()), LinkFault::kWrongCoordinatorKey);
  EXPECT_EQ(told(s.coordinator.public_key()), LinkFault::kUninvitedNode);
}

TEST(Handshake, ACoordinatorWithoutThePrivateKeyIsRefused) {
  // Someone in the middle answers with the right public key but signs with another.
  Scene s;
  NodeHandshake node(s.credentials());
  CoordinatorHandshake coordinator(s.coordinator);
  ASSERT_TRUE(coordinator.on_hello(node.hello(), false).ok());
  std::string offer = *coordinator.offer(s.known);
  const std::size_t at = offer.find("\"signature\":\"") + 13;
  offer[at] = offer[at] == 'A' ? 'B' : 'A';
  EXPECT_EQ(fault_of(node.on_message(offer, true).error()), LinkFault::kBadSignature);
}

TEST(Handshake, AnOfferForAnotherHelloIsRefused) {
  Scene s;
  NodeHandshake first(s.credentials()), second(s.credentials());
  CoordinatorHandshake coordinator(s.coordinator);
  ASSERT_TRUE(coordinator.on_hello(first.hello(), false).ok());
  EXPECT_EQ(fault_of(second.on_message(*coordinator.offer(s.known), true).error()),
            LinkFault::kBadSignature);
}

TEST(Handshake, AReplayedProofIsRefused) {
  Scene s;
  NodeHandshake node(s.credentials());
  CoordinatorHandshake first(s.coordinator), second(s.coordinator);
  ASSERT_TRUE(first.on_hello(node.hello(), false).ok());
  ASSERT_TRUE(second.on_hello(node.hello(), false).ok());
  const std::string proof = *node.on_message(*first.offer(s.known), true);
  ASSERT_TRUE(second.offer(s.known).ok());
  EXPECT_EQ(fault_of(second.on_proof(proof, true).error()), LinkFault::kBadSignature);
}

TEST(Handshake, VersionsWithoutOverlapAreRefusedByName) {
  Scene s;
  CoordinatorHandshake coordinator(s.coordinator);
  auto hello = coordinator.on_hello(R"({"min_version":7,"max_version":9,"node":"alpha"})", false);
  ASSERT_FALSE(hello.ok());
  EXPECT_EQ(fault_of(hello.error()), LinkFault::kVersionMismatch);
  EXPECT_THAT(hello.error().message, HasSubstr("7 to 9"));
}

TEST(Handshake, MessagesOutOfTurnOversizedTruncatedOrMalformedAreRefused) {
  Scene s;
  CoordinatorHandshake a(s.coordinator);
  EXPECT_EQ(fault_of(a.on_hello("{}", true).error()), LinkFault::kUnexpectedMessage);
  EXPECT_EQ(fault_of(a.on_hello(std::string(kMaxHandshakeBytes + 1, ' '), false).error()),
            LinkFault::kFrameOversized);
  EXPECT_EQ(fault_of(a.on_hello("{\"node\":", false).error()), LinkFault::kMalformedMessage);
  EXPECT_EQ(fault_of(a.on_proof("", true).error()), LinkFault::kUnexpectedMessage);
  NodeHandshake node(s.credentials());
  ASSERT_TRUE(a.on_hello(node.hello(), false).ok());
  EXPECT_EQ(fault_of(a.on_hello(node.hello(), false).error()), LinkFault::kUnexpectedMessage);
  const std::string offer = *a.offer(s.known);
  EXPECT_EQ(fault_of(node.on_message(offer, false).error()), LinkFault::kUnexpectedMessage);
  EXPECT_EQ(fault_of(node.on_message(offer.substr(0, 40), true).error()),
            LinkFault::kFrameTruncated);
  EXPECT_EQ(fault_of(node.on_message(std::string(5000, '\1'), true).error()),
            LinkFault::kFrameOversized);
  EXPECT_EQ(fault_of(a.on_proof(offer, true).error()), LinkFault::kUnexpectedMessage);
  EXPECT_FALSE(node.done());
  EXPECT_FALSE(a.done());
}

TEST(Handshake, AKeyShareOfLowOrderIsRefused) {
  KeyShare share;
  EXPECT_FALSE(share.derive(EphemeralKey{}, "t", true).ok());
}

TEST(JoinToken, RoundTripsAsOneString) {
  JoinToken token{.coordinator_key = Identity::generate().public_key(),
                  .node = "gpu-box.1",
                  .secret = random_seed(),
                  .url = "wss://example.org:8443/v1/link"};
  const std::string text = *to_text(token);
  EXPECT_EQ(
      text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
      std::string::npos);
  auto read = join_token_from_text("  " + text + "\n");
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  EXPECT_EQ(*read, token);
}

TEST(JoinToken, EveryTypingErrorIsNoticed) {
  JoinToken token{
      .coordinator_key = Identity::generate().public_key(), .node = "n", .secret = random_seed()};
  const std::string text = *to_text(token);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string bad = text;
    bad[i] = bad[i] == 'A' ? 'B' : 'A';
    auto read = join_token_from_text(bad);
    EXPECT_TRUE(!read.ok() || *read == token) << i;  // the last character has spare bits
    EXPECT_FALSE(join_token_from_text(text.substr(0, i)).ok()) << i;
  }
  EXPECT_EQ(fault_of(join_token_from_text("fl-abc").error()), LinkFault::kBadJoinToken);
  token.version = 2;
  EXPECT_THAT(join_token_from_text(*to_text(token)).error().message, HasSubstr("version 2"));
  token.node = "bad name";
  EXPECT_FALSE(to_text(token).ok());
}

TEST(Identity, FileIsCreatedPrivateAndReadAgain) {
  const std::string path =
      ::testing::TempDir() + "/flotilla-identity-test-" + std::to_string(::getpid());
  std::remove(path.c_str());
  auto made = Identity::load_or_create(path);
  ASSERT_TRUE(made.ok()) << to_string(made.error());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  auto again = Identity::load_or_create(path);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->public_key(), made->public_key());
  const Signature signature = again->sign("hello");
  EXPECT_TRUE(verify(made->public_key(), "hello", signature));
  EXPECT_FALSE(verify(made->public_key(), "hellp", signature));

  ::chmod(path.c_str(), 0644);
  EXPECT_EQ(Identity::load_or_create(path).error().code, ErrorCode::kPermissionDenied);
  ::chmod(path.c_str(), 0600);
  { std::ofstream(path) << "garbage\n"; }
  EXPECT_EQ(Identity::load_or_create(path).error().code, ErrorCode::kDataLoss);
  std::remove(path.c_str());
  EXPECT_FALSE(Identity::load_or_create("/nonexistent/dir/key").ok());
}

TEST(Identity, ToolCallIdsDependOnJobAndIndexOnly) {
  const JobId job = random_job_id();
  EXPECT_EQ(tool_call_id(job, 0), tool_call_id(job, 0));
  EXPECT_NE(tool_call_id(job, 0), tool_call_id(job, 1));
  EXPECT_NE(tool_call_id(job, 0), tool_call_id(random_job_id(), 0));
  EXPECT_EQ(tool_call_id(job, 0).size(), 29u);
}

}  // namespace
}  // namespace flotilla::protocol
