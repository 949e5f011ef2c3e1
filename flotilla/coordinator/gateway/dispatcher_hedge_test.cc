// A node that does not answer its Prepare gets company.
#include "flotilla/coordinator/fleet_fixture.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;
using protocol::RefuseReason;

class Hedged : public Fleet {
 protected:
  // A request that one node does not answer; the other one is asked as well after two seconds.
  void SetUp() override {
    a = join("a");
    b = join("b");
    client = ask();
    slow = a->asked.empty() ? b : a;
    other = a->asked.empty() ? a : b;
    wait(1900ms);
    EXPECT_TRUE(other->asked.empty());
    wait(100ms);
    ASSERT_EQ(other->asked.size(), 1u);
    ASSERT_EQ(slow->asked.size(), 1u);
    EXPECT_NE(other->asked[0].attempt, slow->asked[0].attempt);
  }
  void ack_cancels() {
    for (const auto& node : {a, b}) {
      for (const FakeNode::Sent& sent : node->sent) {
        if (!std::holds_alternative<protocol::Cancel>(sent.message)) continue;
        dispatcher.node_message(node->id, node.get(), sent.job, sent.attempt,
                                protocol::CancelAck{});
      }
    }
  }
  // The request is answered by `node`, which alone was started.
  void expect_served_by(FakeNode& node) {
    EXPECT_EQ(node.all<protocol::Start>().size(), 1u);
    EXPECT_EQ(a->all<protocol::Start>().size() + b->all<protocol::Start>().size(), 1u);
    tokens(node, node.asked[0], 0, "hi");
    finish(node, node.asked[0], 1);
    EXPECT_EQ(client->text(), "hi");
    EXPECT_FALSE(client->finishes().at(0).error);
    ack_cancels();
    expect_idle();
  }

  std::shared_ptr<FakeNode> a, b, slow, other;
  std::shared_ptr<FakeClient> client;
};

TEST_F(Hedged, TheSecondNodeThatAnswersFirstIsStartedAndTheFirstCancelled) {
  lease(*other);
  EXPECT_EQ(slow->all<protocol::Cancel>().size(), 1u);
  lease(*slow);  // too late
  expect_served_by(*other);
}

TEST_F(Hedged, TheFirstNodeThatAnswersAfterAllIsStartedAndTheSecondReleased) {
  lease(*slow);
  EXPECT_EQ(other->all<protocol::Cancel>().size(), 1u);
  lease(*other);
  expect_served_by(*slow);
}

TEST_F(Hedged, AtMostOneSecondNodeIsAsked) {
  auto c = join("c");
  wait(5s);
  EXPECT_TRUE(c->asked.empty());
  lease(*slow);
  expect_served_by(*slow);
}

TEST_F(Hedged, ARefusalOfTheFirstLeavesTheSecond) {
  refuse(*slow, 0, RefuseReason::kBusy);
  EXPECT_EQ(other->asked.size(), 1u);
  EXPECT_TRUE(client->events.empty());
  lease(*other);
  expect_served_by(*other);
}

TEST_F(Hedged, ARefusalOfTheSecondLeavesTheFirst) {
  refuse(*other, 0, RefuseReason::kDraining);
  EXPECT_TRUE(client->events.empty());
  lease(*slow);
  expect_served_by(*slow);
}

TEST_F(Hedged, ARefusalThatEveryNodeWouldRepeatEndsBoth) {
  refuse(*slow, 0, RefuseReason::kInvalidRequest, {ErrorCode::kInvalidArgument, "no"});
  EXPECT_EQ(client->error().message, "no");
  EXPECT_EQ(other->all<protocol::Cancel>().size(), 1u);
  ack_cancels();
  expect_idle();
}

TEST_F(Hedged, TheLossOfEitherLeavesTheOther) {
  lose(*slow);
  EXPECT_EQ(other->asked.size(), 1u);
  lease(*other);
  expect_served_by(*other);
}

TEST_F(Hedged, TheLossOfTheSecondIsNoLoss) {
  lose(*other);
  EXPECT_EQ(slow->asked.size(), 1u);
  lease(*slow);
  expect_served_by(*slow);
}

TEST_F(Hedged, WhenTheFirstNeverAnswersTheSecondHasItsOwnTime) {
  for (int i = 0; i < 3; ++i) {
    beat(*slow);
    beat(*other);
    wait(4400ms);
  }
  EXPECT_EQ(slow->all<protocol::Cancel>().size(), 1u);  // after 15 s
  lease(*other);
  expect_served_by(*other);
}

TEST_F(Hedged, AClientThatLeavesEndsBoth) {
  dispatcher.cancel(client->id);
  EXPECT_EQ(a->all<protocol::Cancel>().size(), 1u);
  EXPECT_EQ(b->all<protocol::Cancel>().size(), 1u);
  ack_cancels();
  expect_idle();
}

TEST_F(Fleet, WithoutAnotherFreeNodeNothingIsHedged) {
  auto a = join("a", 1), b = join("b", 1);
  auto one = ask(), two = ask();
  wait(3s);
  EXPECT_EQ(a->asked.size() + b->asked.size(), 2u);
}

}  // namespace
}  // namespace flotilla::coordinator
