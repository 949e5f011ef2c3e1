#include "flotilla/coordinator/fleet_fixture.h"

namespace flotilla::coordinator {
namespace {

using protocol::RefuseReason;
using protocol::WireFinishReason;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Reason = serving::ChatFinish::Reason;
using namespace std::chrono_literals;

TEST_F(Fleet, AJobGoesThroughPrepareLeaseStartTokensFinish) {
  auto node = join("a");
  auto client = ask();
  ASSERT_EQ(node->asked.size(), 1u);
  EXPECT_THAT(node->all<protocol::Start>(), IsEmpty());
  const auto job = lease(*node);
  EXPECT_EQ(node->all<protocol::Start>().size(), 1u);
  tokens(*node, job, 0, "Hel");
  tokens(*node, job, 1, "lo");
  finish(*node, job, 2);
  EXPECT_EQ(client->text(), "Hello");
  ASSERT_EQ(client->finishes().size(), 1u);
  EXPECT_EQ(client->finishes()[0].reason, Reason::kStop);
  EXPECT_EQ(client->finishes()[0].usage.completion_tokens, 2);
  EXPECT_FALSE(client->finishes()[0].error);
  expect_idle();
}

TEST_F(Fleet, ANodeLostBeforeTheFirstContentIsReplacedUnseen) {
  auto a = join("a", 1);
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "");  // an id whose text is held back
  auto b = join("b", 1);
  lose(*a);
  ASSERT_EQ(b->asked.size(), 1u);
  EXPECT_EQ(b->asked[0].attempt, 2u);
  EXPECT_EQ(b->asked[0].prepare, job.prepare);  // seed and time of the first attempt
  const auto again = lease(*b);
  tokens(*b, again, 1, "Hi");
  finish(*b, again, 1);
  EXPECT_EQ(client->text(), "Hi");
  EXPECT_FALSE(client->finishes().at(0).error);
  EXPECT_EQ(client->finishes().at(0).usage.completion_tokens, 2);
  expect_idle();
}

TEST_F(Fleet, TimeOnANodeThatIsLostIsNotTimeInTheQueue) {
  auto a = join("a", 1);
  auto client = ask(/*stream=*/false);
  const auto job = lease(*a);
  for (int i = 0; i < 12; ++i) {
    wait(limits.queue_timeout / 6);
    beat(*a);
    tokens(*a, job, static_cast<std::uint32_t>(i), "x");
  }
  lose(*a);
  wait(limits.queue_timeout / 6);
  auto again = join("a", 1);
  ASSERT_EQ(again->asked.size(), 1u);
  tokens(*again, lease(*again), 12, "Hi");
  finish(*again, again->asked[0], 1);
  EXPECT_EQ(client->text(), "xxxxxxxxxxxxHi");
  expect_idle();
}

TEST_F(Fleet, ARefusalSendsTheJobToTheNextNode) {
  auto a = join("a"), b = join("b");
  auto client = ask();
  auto& first = a->asked.empty() ? *b : *a;
  auto& second = a->asked.empty() ? *a : *b;
  refuse(first, 0, RefuseReason::kBusy);
  ASSERT_EQ(second.asked.size(), 1u);
  EXPECT_THAT(first.all<protocol::Start>(), IsEmpty());
  const auto job = lease(second);
  finish(second, job, 0);
  EXPECT_FALSE(client->finishes().at(0).error);
  expect_idle();
}

TEST_F(Fleet, ARefusalOfTheRequestItselfGoesToTheClientAtOnce) {
  auto a = join("a"), b = join("b");
  auto client = ask();
  auto& first = a->asked.empty() ? *b : *a;
  refuse(first, 0, RefuseReason::kInvalidRequest,
         {ErrorCode::kContextLength, "the prompt has 5000 tokens, the context 4096", "messages"});
  EXPECT_EQ(client->error().code, ErrorCode::kContextLength);
  EXPECT_EQ(client->error().param, "messages");
  EXPECT_EQ(a->asked.size() + b->asked.size(), 1u);
  expect_idle();
}

TEST_F(Fleet, WhenEveryNodeRefusesForGoodTheLastReasonIsTold) {
  auto a = join("a"), b = join("b");
  auto client = ask();
  auto& first = a->asked.empty() ? *b : *a;
  auto& second = a->asked.empty() ? *a : *b;
  refuse(first, 0, RefuseReason::kOther, {ErrorCode::kUnavailable, "one"});
  refuse(second, 0, RefuseReason::kOther, {ErrorCode::kUnavailable, "two"});
  EXPECT_EQ(client->error().message, "two");
  expect_idle();
}

TEST_F(Fleet, ABusyNodeIsAskedAgainAfterItsTime) {
  auto a = join("a");
  auto client = ask();
  for (std::size_t i = 0; i < 20; ++i) {  // far more often than a job may fail
    refuse(*a, i, RefuseReason::kBusy, {ErrorCode::kResourceExhausted, "full"}, 300);
    EXPECT_EQ(a->asked.size(), i + 1);
    wait(250ms);
    EXPECT_EQ(a->asked.size(), i + 1);
    wait(50ms);
    ASSERT_EQ(a->asked.size(), i + 2);
    beat(*a);
  }
  const auto job = lease(*a, 20);
  finish(*a, job, 0);
  EXPECT_FALSE(client->finishes().at(0).error);
  expect_idle();
}

TEST_F(Fleet, JobsWaitForASlotInOrderOfArrival) {
  auto a = join("a", 1);
  auto first = ask(), second = ask(), third = ask();
  EXPECT_EQ(a->asked.size(), 1u);
  EXPECT_EQ(dispatcher.num_queued(), 2u);
  finish(*a, lease(*a, 0), 0);
  ASSERT_EQ(a->asked.size(), 2u);
  tokens(*a, lease(*a, 1), 0, "second");
  EXPECT_EQ(second->text(), "second");
  finish(*a, a->asked[1], 1);
  tokens(*a, lease(*a, 2), 0, "third");
  EXPECT_EQ(third->text(), "third");
  finish(*a, a->asked[2], 1);
  expect_idle();
}

TEST_F(Fleet, WaitingIsBoundedInTimeAndTheRefusalSaysWhy) {
  auto a = join("a", 1);
  auto running = ask();
  tokens(*a, lease(*a), 0, "x");
  auto waiting = ask();
  for (int i = 0; i < 29; ++i) {
    wait(1s);
    beat(*a);
  }
  EXPECT_THAT(waiting->events, IsEmpty());
  wait(1s);
  EXPECT_EQ(waiting->error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(waiting->error().message,
              HasSubstr("model 'm': its 1 nodes are busy (1 no_slot), waited 30 s"));
  EXPECT_THAT(running->finishes(), IsEmpty());
}

TEST_F(Fleet, TheQueueIsBoundedInLength) {
  auto a = join("a", 1);
  std::vector<std::shared_ptr<FakeClient>> clients;
  for (std::size_t i = 0; i < limits.max_queued_per_model + 1; ++i) clients.push_back(ask());
  EXPECT_THAT(clients.back()->events, IsEmpty());
  auto late = ask();
  EXPECT_EQ(late->error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(late->error().message, HasSubstr("limit 1024"));
}

TEST_F(Fleet, AModelNobodyServesIsNotFoundAndAnEmptyFleetUnavailable) {
  EXPECT_EQ(ask()->error().code, ErrorCode::kUnavailable);
  join("a");
  auto client = ask(true, 1, "nope");
  EXPECT_EQ(client->error().code, ErrorCode::kNotFound);
  EXPECT_EQ(client->error().param, "model");
  expect_idle();
}

TEST_F(Fleet, TheOnlyNodeMayDropAndComeBack) {
  auto a = join("a");
  std::vector<std::shared_ptr<FakeClient>> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(ask());
  lose(*a);
  for (const auto& c : clients) EXPECT_THAT(c->events, IsEmpty());
  wait(5s);
  auto back = join("a");
  for (std::size_t i = 0; i < 5; ++i) {
    while (back->asked.size() <= i) FAIL() << "job " << i << " was not placed";
    const auto job = lease(*back, i);
    tokens(*back, job, 0, "ok");
    finish(*back, job, 1);
  }
  for (const auto& c : clients) EXPECT_EQ(c->text(), "ok");
  expect_idle();
}

TEST_F(Fleet, ANodeThatReconnectsReplacesItsOldConnection) {
  auto old = join("a");
  auto client = ask();
  auto fresh = join("a");
  EXPECT_TRUE(old->closed.has_value());
  ASSERT_EQ(fresh->asked.size(), 1u);
  // What still arrives over the old connection is nobody's.
  dispatcher.node_message(old->id, old.get(), old->asked[0].job, old->asked[0].attempt,
                          protocol::Lease{});
  dispatcher.node_closed(old->id, old.get(), "late");
  EXPECT_THAT(old->all<protocol::Start>(), IsEmpty());
  const auto job = lease(*fresh);
  finish(*fresh, job, 0);
  EXPECT_FALSE(client->finishes().at(0).error);
  expect_idle();
}

TEST_F(Fleet, TokensOutOfOrderNeverReachTheClient) {
  auto a = join("a");
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "one ");
  tokens(*a, job, 2, "three");
  EXPECT_EQ(client->text(), "one ");
  EXPECT_EQ(client->error().code, ErrorCode::kInternal);
  EXPECT_EQ(a->all<protocol::Cancel>().size(), 1u);
}

TEST_F(Fleet, AFinishThatMissesTokensIsAnError) {
  auto a = join("a");
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "one");
  finish(*a, job, 2);
  EXPECT_EQ(client->error().code, ErrorCode::kInternal);
  expect_idle();
}

TEST_F(Fleet, AFaultThatEveryNodeHasEndsTheRequestWithItsReason) {
  auto a = join("a"), b = join("b");
  auto client = ask();
  auto& first = a->asked.empty() ? *b : *a;
  auto& second = a->asked.empty() ? *a : *b;
  fail(first, lease(first), {ErrorCode::kModelFault, "NaN"});
  ASSERT_EQ(second.asked.size(), 1u);
  fail(second, lease(second), {ErrorCode::kModelFault, "NaN"});
  EXPECT_EQ(client->error().code, ErrorCode::kModelFault);
  expect_idle();
}

TEST_F(Fleet, ARequestThatBreaksEveryNodeStopsAfterAFewOfThem) {
  std::vector<std::shared_ptr<FakeNode>> nodes;
  for (int i = 0; i < 10; ++i) nodes.push_back(join("n" + std::to_string(i)));
  auto client = ask();
  std::size_t lost = 0;
  while (client->events.empty() && lost < nodes.size()) {
    for (auto& node : nodes) {
      if (node && !node->asked.empty()) {
        lose(*node);
        node.reset();
        ++lost;
        break;
      }
    }
  }
  EXPECT_EQ(lost, limits.max_failures);
  EXPECT_EQ(client->error().code, ErrorCode::kUnavailable);
}

TEST_F(Fleet, AHangingAttemptIsReplaced) {
  auto a = join("a", 1);
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "");
  auto b = join("b", 1);
  for (int i = 0; i < 12; ++i) {
    beat(*a);
    beat(*b);
    wait(10s);
  }
  ASSERT_EQ(b->asked.size(), 1u);
  EXPECT_EQ(a->all<protocol::Cancel>().size(), 1u);
  const auto again = lease(*b);
  tokens(*b, again, 1, "x");
  finish(*b, again, 1);
  EXPECT_EQ(client->text(), "x");
  EXPECT_FALSE(client->finishes().at(0).error);
}

TEST_F(Fleet, ChoicesAreJobsOfTheirOwn) {
  auto a = join("a", 2), b = join("b", 2);
  auto client = ask(true, 3);
  EXPECT_EQ(a->asked.size() + b->asked.size(), 3u);
  std::vector<std::uint32_t> choices;
  for (auto& node : {a, b}) {
    for (std::size_t i = 0; i < node->asked.size(); ++i) {
      const auto job = lease(*node, i);
      choices.push_back(job.choice);
      tokens(*node, job, 0, "choice " + std::to_string(job.choice));
      finish(*node, job, 1);
    }
  }
  EXPECT_THAT(choices, ::testing::UnorderedElementsAre(0, 1, 2));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client->text(i), "choice " + std::to_string(i));
  EXPECT_EQ(client->finishes().size(), 3u);
  expect_idle();
}

TEST_F(Fleet, ARevokedNodeIsCutAndItsJobsGoElsewhere) {
  auto a = join("a", 1);
  auto client = ask();
  auto b = join("b", 1);
  dispatcher.set_access({b->id}, {a->id});
  EXPECT_EQ(a->closed->param, "revoked_node");
  EXPECT_EQ(b->asked.size(), 1u);
  EXPECT_EQ(dispatcher.registry().num_providers(), 1u);
  auto late = join("a");  // its handshake had begun before
  EXPECT_EQ(late->closed->param, "revoked_node");
  EXPECT_EQ(dispatcher.registry().num_providers(), 1u);
}

TEST_F(Fleet, ModelsAreThoseThatSomeNodeHasLoadedOrCouldLoad) {
  auto a = join("a", 1, {"x", "y"});
  auto b = join("b", 1, {"y", "z"});
  const auto names = [&] {
    std::vector<std::string> out;
    for (const auto& entry : dispatcher.models()) out.push_back(entry.id);
    return out;
  };
  EXPECT_THAT(names(), ElementsAre("x", "y", "z"));
  protocol::ModelStatus status;
  status.model = "x";
  status.state = protocol::ModelState::kUnloaded;
  say(*a, {}, status);
  EXPECT_THAT(names(), ElementsAre("x", "y", "z"));
  status.state = protocol::ModelState::kFailed;
  status.error = protocol::to_wire({ErrorCode::kDataLoss, "a shard is missing"});
  say(*a, {}, status);
  EXPECT_THAT(names(), ElementsAre("y", "z"));
  protocol::Register fewer;
  fewer.models = {offer("z", 1)};
  say(*b, {}, fewer);
  EXPECT_THAT(names(), ElementsAre("y", "z"));
  lose(*a);
  EXPECT_THAT(names(), ElementsAre("z"));
  EXPECT_GE(models_changed, 5);
}

TEST_F(Fleet, AnUnhealthyModelGetsNoJobsUntilItRecovers) {
  auto a = join("a");
  protocol::Heartbeat bad;
  protocol::SlotLoad slot;
  slot.model = "m";
  slot.healthy = false;
  bad.slots = {slot};
  say(*a, {}, bad);
  auto client = ask();
  EXPECT_THAT(a->asked, IsEmpty());
  bad.slots[0].healthy = true;
  say(*a, {}, bad);
  EXPECT_EQ(a->asked.size(), 1u);
}

}  // namespace
}  // namespace flotilla::coordinator
