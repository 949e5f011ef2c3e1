// Models that are asked for and not loaded.
#include "flotilla/coordinator/fleet_fixture.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;
using protocol::ModelState;
using protocol::RefuseReason;

class Loads : public Fleet {
 protected:
  std::shared_ptr<FakeNode> join_cold(const std::string& name) {
    protocol::Register message;
    message.models = {offer("m", 2)};
    message.models[0].loaded = false;
    message.models[0].resident_bytes = 1'000'000;
    return join(name, message);
  }
  void status(FakeNode& node, ModelState state, std::optional<Error> error = {}) {
    protocol::ModelStatus message;
    message.model = "m";
    message.state = state;
    if (error) message.error = protocol::to_wire(*error);
    say(node, {}, message);
  }
};

TEST_F(Loads, ARequestForAModelThatIsNowhereLoadedHasItLoadedAndIsServed) {
  auto a = join_cold("a");
  ASSERT_EQ(dispatcher.models().size(), 1u);  // it may be asked for
  auto client = ask();
  ASSERT_EQ(a->all<protocol::Load>().size(), 1u);  // at once
  EXPECT_EQ(a->all<protocol::Load>()[0].model, "m");
  EXPECT_TRUE(a->asked.empty());
  status(*a, ModelState::kLoading);
  wait(5s);
  status(*a, ModelState::kLoaded);
  ASSERT_EQ(a->asked.size(), 1u);
  const auto job = lease(*a);
  tokens(*a, job, 0, "hi");
  finish(*a, job, 1);
  EXPECT_EQ(client->text(), "hi");
  EXPECT_FALSE(client->finishes().at(0).error);
  EXPECT_EQ(a->all<protocol::Load>().size(), 1u);
  expect_idle();
}

// The gate is on, the node is full; what tells of the end of somebody else's sequence is a
// heartbeat.
TEST_F(Loads, AHeartbeatThatFreesMemoryLetsThoseIn) {
  DispatchLimits strict;
  strict.gates.state = gates::Mode::kOn;
  Dispatcher gated(clock, metrics, strict, [] {});
  protocol::Register message;
  message.models = {offer("m", 4)};
  message.models[0].state_classes = {{1'000, 0}};
  auto node = std::make_shared<FakeNode>();
  node->id = ProviderId{"id-a"};
  gated.node_joined({node->id, "a", node}, message);
  protocol::Heartbeat beat;
  beat.slots.resize(1);
  beat.slots[0].model = "m";
  beat.slots[0].healthy = true;
  beat.slots[0].kv_bytes_total = 1'000'000;
  beat.slots[0].kv_bytes_used = 1'000'000;
  const auto say_beat = [&] {
    ++beat.sequence;
    gated.node_message(node->id, node.get(), {}, 0, beat);
  };
  say_beat();
  auto prepare = std::make_shared<protocol::Prepare>();
  prepare->model = "m";
  auto wanted = std::make_shared<RouteAsk>();
  wanted->prompt_tokens = 100;
  Admission admission{
      RequestId{1}, "req", true, 1, prepare, [](serving::ChatEvent) { return true; }};
  admission.ask = wanted;
  gated.submit(std::move(admission));
  EXPECT_TRUE(node->asked.empty());
  EXPECT_EQ(gated.num_queued(), 1u);
  say_beat();
  EXPECT_TRUE(node->asked.empty());
  beat.slots[0].kv_bytes_used = 0;
  say_beat();
  EXPECT_EQ(node->asked.size(), 1u);
}

TEST_F(Loads, ANodeThatFailsToLoadIsFollowedByAnother) {
  auto a = join_cold("a"), b = join_cold("b");
  auto client = ask();
  auto& first = a->all<protocol::Load>().empty() ? *b : *a;
  auto& second = a->all<protocol::Load>().empty() ? *a : *b;
  status(first, ModelState::kFailed, Error{ErrorCode::kDataLoss, "bad"});
  wait(600ms);
  ASSERT_EQ(second.all<protocol::Load>().size(), 1u);
  status(second, ModelState::kLoaded);
  finish(second, lease(second), 0);
  EXPECT_FALSE(client->finishes().at(0).error);
  expect_idle();
}

TEST_F(Loads, WhoWaitedInVainHearsWhenTheLoadWillBeDone) {
  auto a = join_cold("a");
  auto client = ask();
  status(*a, ModelState::kLoading);
  for (int i = 0; i < 6; ++i) {
    beat(*a);
    wait(5s);
  }
  EXPECT_EQ(client->error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(client->error().message.find("1 loading"), std::string::npos);
  EXPECT_GE(client->error().retry_after_s, 1);
  expect_idle();
}

TEST_F(Loads, AModelThatWentWhileTheJobWasOnItsWayIsNoErrorForTheClient) {
  auto a = join("a");
  auto client = ask();
  ASSERT_EQ(a->asked.size(), 1u);
  refuse(*a, 0, RefuseReason::kNotLoaded, {ErrorCode::kUnavailable, "unloaded"});
  EXPECT_TRUE(client->events.empty());
  ASSERT_EQ(a->all<protocol::Load>().size(), 1u);
  status(*a, ModelState::kLoaded);
  ASSERT_EQ(a->asked.size(), 2u);
  finish(*a, lease(*a, 1), 0);
  EXPECT_FALSE(client->finishes().at(0).error);
  expect_idle();
}

TEST_F(Loads, AnOrderOfTheOwnerTakesAModelOutOfServiceAtOnce) {
  auto a = join("a"), b = join("b");
  EXPECT_EQ(dispatcher.order(WarmOrder::What::kUnload, "z", "m").error().param, "node");
  EXPECT_EQ(dispatcher.order(WarmOrder::What::kUnload, "a", "z").error().param, "model");
  ASSERT_TRUE(dispatcher.order(WarmOrder::What::kUnload, "a", "m").ok());
  EXPECT_EQ(a->all<protocol::Unload>().size(), 1u);
  for (int i = 0; i < 3; ++i) ask();
  EXPECT_TRUE(a->asked.empty());
  EXPECT_EQ(b->asked.size(), 3u);
  ASSERT_TRUE(dispatcher.order(WarmOrder::What::kLoad, "a", "m").ok());
  EXPECT_EQ(a->all<protocol::Load>().size(), 1u);
  status(*a, ModelState::kLoaded);
  ask();
  EXPECT_EQ(a->asked.size(), 1u);
}

}  // namespace
}  // namespace flotilla::coordinator
