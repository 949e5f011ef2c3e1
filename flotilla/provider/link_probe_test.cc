#include "flotilla/provider/link_probe.h"

#include <gtest/gtest.h>

#include "flotilla/protocol/link_error.h"
#include "flotilla/provider/test_fakes.h"

namespace flotilla::provider {
namespace {

using namespace std::chrono_literals;

class LinkProbeTest : public ::testing::Test {
 protected:
  Result<LinkProbe> probe(const protocol::NodeCredentials& credentials) {
    LinkProbeOptions options{.websocket = {}, .timeout = 2000ms, .grace = 300ms};
    options.websocket.url = "ws://127.0.0.1:" + std::to_string(coordinator_.port()) + "/v1/link";
    return probe_link(io_, options, credentials);
  }
  net::IoRuntime io_{2};
  FakeCoordinator coordinator_{io_};
  const protocol::Identity node_ = protocol::Identity::generate();
  protocol::NodeCredentials credentials_ = coordinator_.credentials(node_);
};

TEST_F(LinkProbeTest, AnInvitedNodeIsAcceptedAndNotRegistered) {
  const auto probed = probe(credentials_);
  ASSERT_TRUE(probed.ok()) << probed.error().message;
  EXPECT_FALSE(probed->peer.empty());
  EXPECT_TRUE(eventually([&] { return coordinator_.num_closed == 1; }));
  EXPECT_EQ(coordinator_.num_registered, 0);
}

TEST_F(LinkProbeTest, AWrongCoordinatorKeyIsNamed) {
  credentials_.coordinator_key = protocol::Identity::generate().public_key();
  const auto probed = probe(credentials_);
  ASSERT_FALSE(probed.ok());
  EXPECT_EQ(protocol::link_fault(probed.error()), protocol::LinkFault::kWrongCoordinatorKey);
}

TEST_F(LinkProbeTest, AnUninvitedNodeIsNamed) {
  coordinator_.known.reset();
  const auto probed = probe(credentials_);
  ASSERT_FALSE(probed.ok());
  EXPECT_EQ(protocol::link_fault(probed.error()), protocol::LinkFault::kUninvitedNode);
}

TEST_F(LinkProbeTest, AProofThatIsNotWantedIsNamed) {
  credentials_.invite_secret = protocol::random_seed();  // of another invitation
  const auto probed = probe(credentials_);
  ASSERT_FALSE(probed.ok());
  EXPECT_EQ(protocol::link_fault(probed.error()), protocol::LinkFault::kUninvitedNode);
}

TEST_F(LinkProbeTest, NobodyThereIsAnError) {
  coordinator_.close_listener();
  EXPECT_EQ(probe(credentials_).error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace flotilla::provider
