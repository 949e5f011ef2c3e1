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
  tokens(*b, again, 0, "Hi");
  finish(*b, again, 1);
  EXPECT_EQ(client->text(), "Hi");
  EXPECT_FALSE(client->finishes().at(0).error);
  // The ids of the lost attempt did not reach the client.
  EXPECT_EQ(client->events[0].ids.size(), 1u);
  expect_idle();
}

TEST_F(Fleet, ANodeLostAfterContentEndsTheStreamWithOneError) {
  auto a = join("a");
  auto b = join("b");
  auto client = ask();
  auto& serving = a->asked.empty() ? *b : *a;
  auto& other = a->asked.empty() ? *a : *b;
  tokens(serving, lease(serving), 0, "Hi");
  lose(serving);
  EXPECT_EQ(client->error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client->text(), "Hi");
  EXPECT_THAT(other.asked, IsEmpty());
  expect_idle();
}

TEST_F(Fleet, AnAnswerThatIsNotStreamedSurvivesALossAtAnyPoint) {
  auto a = join("a", 1);
  auto client = ask(/*stream=*/false);
  tokens(*a, lease(*a), 0, "Hal");
  EXPECT_THAT(client->events, IsEmpty());
  auto b = join("b");
  lose(*a);
  const auto again = lease(*b);
  tokens(*b, again, 0, "Hal");
  tokens(*b, again, 1, "lo");
  finish(*b, again, 2);
  EXPECT_EQ(client->text(), "Hallo");
  EXPECT_FALSE(client->finishes().at(0).error);
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
  refuse(first, 0, RefuseReason::kNotLoaded, {ErrorCode::kUnavailable, "one"});
  refuse(second, 0, RefuseReason::kNotLoaded, {ErrorCode::kUnavailable, "two"});
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
  EXPECT_THAT(waiting->error().message, HasSubstr("model 'm': its 1 nodes are busy, waited 30 s"));
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

TEST_F(Fleet, CancelReachesTheNodeAtOnceAndHoldsTheSlotUntilAcknowledged) {
  auto a = join("a", 1);
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "x");
  auto next = ask();
  const std::size_t before = client->events.size();
  dispatcher.cancel(client->id);
  ASSERT_EQ(a->all<protocol::Cancel>().size(), 1u);
  EXPECT_EQ(a->asked.size(), 1u);  // the slot is not free yet
  tokens(*a, job, 1, "late");
  EXPECT_EQ(client->events.size(), before);
  say(*a, job, protocol::CancelAck{});
  EXPECT_EQ(a->asked.size(), 2u);
  say(*a, job, protocol::CancelAck{});  // twice: nothing happens
  dispatcher.cancel(client->id);
  EXPECT_EQ(a->all<protocol::Cancel>().size(), 1u);
  finish(*a, lease(*a, 1), 0);
  expect_idle();
}

TEST_F(Fleet, AFinishThatCrossesACancelDoesNotFreeTheSlotTwice) {
  auto a = join("a", 1);
  auto client = ask();
  const auto job = lease(*a);
  dispatcher.cancel(client->id);
  finish(*a, job, 0);
  say(*a, job, protocol::CancelAck{});
  EXPECT_THAT(client->events, IsEmpty());
  expect_idle();
}

TEST_F(Fleet, ACancelThatIsNotAcknowledgedIsCountedAndFreesTheSlot) {
  auto a = join("a", 1);
  auto client = ask();
  lease(*a);
  dispatcher.cancel(client->id);
  wait(limits.cancel_ack_timeout);
  EXPECT_THAT(metrics.render(), HasSubstr("flotilla_cancels_unanswered_total 1"));
  auto next = ask();
  EXPECT_EQ(a->asked.size(), 2u);
}

TEST_F(Fleet, AQueuedRequestCanBeCancelled) {
  auto a = join("a", 1);
  auto first = ask(), second = ask();
  dispatcher.cancel(second->id);
  EXPECT_EQ(dispatcher.num_queued(), 0u);
  finish(*a, lease(*a), 0);
  EXPECT_EQ(a->asked.size(), 1u);
  expect_idle();
}

TEST_F(Fleet, FramesOfAnOldAttemptAreDropped) {
  auto a = join("a", 1);
  auto client = ask();
  const auto old = a->asked[0];
  wait(limits.lease_timeout - 1s);
  beat(*a);
  auto b = join("b", 1);
  wait(1s);  // no lease in time: the job goes on elsewhere
  ASSERT_EQ(b->asked.size(), 1u);
  ASSERT_EQ(a->all<protocol::Cancel>().size(), 1u);
  say(*a, old, protocol::Lease{});
  EXPECT_THAT(a->all<protocol::Start>(), IsEmpty());  // only one attempt is ever started
  const auto job = lease(*b);
  tokens(*a, old, 0, "WRONG");
  tokens(*b, job, 0, "right");
  finish(*a, old, 1);
  finish(*b, job, 1);
  EXPECT_EQ(client->text(), "right");
  say(*a, old, protocol::CancelAck{});
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

TEST_F(Fleet, ANodeFaultBeforeContentGoesElsewhereAndAfterItEndsTheStream) {
  auto a = join("a"), b = join("b");
  auto client = ask();
  auto& first = a->asked.empty() ? *b : *a;
  auto& second = a->asked.empty() ? *a : *b;
  fail(first, lease(first), {ErrorCode::kModelFault, "NaN"});
  ASSERT_EQ(second.asked.size(), 1u);
  const auto job = lease(second);
  tokens(second, job, 0, "x");
  fail(second, job, {ErrorCode::kModelFault, "NaN"});
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

TEST_F(Fleet, AHangingNodeIsReplacedBeforeContentAndEndsTheStreamAfterIt) {
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
  tokens(*b, again, 0, "x");
  for (int i = 0; i < 12; ++i) {
    beat(*a);
    beat(*b);
    wait(10s);
  }
  EXPECT_EQ(client->error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(Fleet, ASilentNodeIsDeadAfterFifteenSeconds) {
  auto a = join("a");
  auto client = ask();
  wait(14'900ms);
  EXPECT_FALSE(a->closed);
  wait(100ms);
  EXPECT_TRUE(a->closed);
  EXPECT_EQ(dispatcher.registry().num_providers(), 0u);
  EXPECT_THAT(client->events, IsEmpty());  // it may come back, or another
}

TEST_F(Fleet, HeartbeatsKeepANodeAliveAndAreAnswered) {
  auto a = join("a");
  for (std::uint64_t i = 1; i <= 10; ++i) {
    wait(5s);
    beat(*a, i);
  }
  EXPECT_FALSE(a->closed);
  EXPECT_EQ(a->all<protocol::HeartbeatAck>().back().sequence, 10u);
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

TEST_F(Fleet, ASlowClientPausesItsOwnJobOnly) {
  auto a = join("a", 2);
  auto slow = ask(), quick = ask();
  const auto slow_job = lease(*a, 0), quick_job = lease(*a, 1);
  slow->takes_more = false;
  tokens(*a, slow_job, 0, "a");
  ASSERT_EQ(a->all<protocol::Flow>().size(), 1u);
  EXPECT_TRUE(a->all<protocol::Flow>()[0].paused);
  EXPECT_EQ(a->sent.back().job, slow_job.job);
  tokens(*a, slow_job, 1, "b");  // was under way
  EXPECT_EQ(slow->text(), "a");
  tokens(*a, quick_job, 0, "q");
  EXPECT_EQ(quick->text(), "q");
  // A client may pause for longer than a node may hang.
  for (int i = 0; i < 20; ++i) {
    beat(*a);
    wait(10s);
    if (i == 5) tokens(*a, quick_job, 1, "q");
    if (i == 15) tokens(*a, quick_job, 2, "q");
  }
  EXPECT_THAT(slow->finishes(), IsEmpty());
  slow->takes_more = true;
  dispatcher.resume(slow->id);
  EXPECT_EQ(slow->text(), "ab");
  EXPECT_FALSE(a->all<protocol::Flow>().back().paused);
  finish(*a, slow_job, 2);
  finish(*a, quick_job, 3);
  EXPECT_FALSE(slow->finishes().at(0).error);
  expect_idle();
}

TEST_F(Fleet, AFinishWaitsBehindWhatASlowClientHasNotRead) {
  auto a = join("a");
  auto client = ask();
  const auto job = lease(*a);
  client->takes_more = false;
  tokens(*a, job, 0, "a");
  tokens(*a, job, 1, "b");
  finish(*a, job, 2);
  EXPECT_THAT(client->finishes(), IsEmpty());
  EXPECT_EQ(dispatcher.table().num_requests(), 1u);
  dispatcher.resume(client->id);  // takes one and pauses again
  EXPECT_EQ(client->text(), "ab");
  EXPECT_THAT(client->finishes(), IsEmpty());
  client->takes_more = true;
  dispatcher.resume(client->id);
  EXPECT_EQ(client->finishes().size(), 1u);
  expect_idle();
}

TEST_F(Fleet, ANodeThatIgnoresThePauseLosesThatStreamOnly) {
  auto a = join("a");
  auto client = ask(), other = ask();
  const auto job = lease(*a, 0), other_job = lease(*a, 1);
  client->takes_more = false;
  std::uint64_t n = 0;
  for (; n < 100 && a->all<protocol::Cancel>().empty(); ++n)
    tokens(*a, job, n, std::string(100'000, 'x'));
  EXPECT_LE(n, 43u);  // 4 MiB
  client->takes_more = true;
  dispatcher.resume(client->id);
  EXPECT_EQ(client->error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(client->events.back().finish);
  tokens(*a, other_job, 0, "fine");
  finish(*a, other_job, 1);
  EXPECT_EQ(other->text(), "fine");
  say(*a, job, protocol::CancelAck{});
  expect_idle();
}

TEST_F(Fleet, ACancelledSlowClientLeavesNothingBehind) {
  auto a = join("a");
  auto client = ask();
  const auto job = lease(*a);
  client->takes_more = false;
  tokens(*a, job, 0, "a");
  tokens(*a, job, 1, "b");
  dispatcher.cancel(client->id);
  dispatcher.resume(client->id);
  say(*a, job, protocol::CancelAck{});
  EXPECT_EQ(client->text(), "a");
  expect_idle();
}

TEST_F(Fleet, ToolCallsHaveIdsAndDecideTheFinishReason) {
  auto a = join("a", 2);
  auto client = ask();
  const auto job = lease(*a);
  protocol::Tokens call;
  call.ids = {1};
  call.deltas = {{protocol::TextChannel::kToolCall, "{}", 0, "", "now"}};
  say(*a, job, call);
  finish(*a, job, 1, WireFinishReason::kStop);
  EXPECT_EQ(client->events[0].deltas[0].call_id, protocol::tool_call_id(job.job, 0));
  EXPECT_EQ(client->finishes().at(0).reason, Reason::kToolCalls);

  auto cut = ask();
  const auto second = lease(*a, 1);
  say(*a, second, call);
  finish(*a, second, 1, WireFinishReason::kLength);
  EXPECT_EQ(cut->finishes().at(0).reason, Reason::kLength);

  auto prose = ask();
  const auto third = lease(*a, 2);
  finish(*a, third, 0, WireFinishReason::kToolCalls);
  EXPECT_EQ(prose->finishes().at(0).reason, Reason::kStop);  // a call must be in the message
}

TEST_F(Fleet, TheRecordKeepsWhatAContinuationNeeds) {
  auto a = join("a");
  auto client = ask();
  const auto asked = lease(*a);
  tokens(*a, asked, 0, "think", protocol::TextChannel::kReasoning);
  tokens(*a, asked, 1, "süß");
  protocol::Tokens call;
  call.first_index = 2;
  call.ids = {2, 3};
  call.deltas = {{protocol::TextChannel::kToolCall, "{\"a\":1}", 1, "id", "f"}};
  say(*a, asked, call);
  const Job& job = *dispatcher.table().job(asked.job);
  EXPECT_THAT(job.ids, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(job.emitted.reasoning, 5u);
  EXPECT_EQ(job.emitted.content, 5u);
  EXPECT_THAT(job.emitted.tool_calls, ElementsAre(0, 7));
  EXPECT_EQ(job.prompt_digest, "d");
}

TEST_F(Fleet, DrainingNodesGetNoNewJobsAndFinishTheirOwn) {
  auto a = join("a", 4);
  auto client = ask();
  const auto job = lease(*a);
  say(*a, {}, protocol::Drain{});
  auto b = join("b", 4);
  for (int i = 0; i < 3; ++i) ask();
  EXPECT_EQ(a->asked.size(), 1u);
  EXPECT_EQ(b->asked.size(), 3u);
  tokens(*a, job, 0, "x");
  finish(*a, job, 1);
  EXPECT_EQ(client->text(), "x");
}

TEST_F(Fleet, ADrainingCoordinatorRefusesNewRequestsAndServesTheOldOnes) {
  auto a = join("a");
  auto old = ask();
  dispatcher.start_drain();
  EXPECT_EQ(ask()->error().code, ErrorCode::kUnavailable);
  const auto job = lease(*a);
  finish(*a, job, 0);
  EXPECT_FALSE(old->finishes().at(0).error);
  expect_idle();
}

TEST_F(Fleet, StoppingEndsEveryRequestWithAnError) {
  auto a = join("a", 1);
  auto running = ask(), queued = ask();
  tokens(*a, lease(*a), 0, "x");
  dispatcher.fail_all({ErrorCode::kUnavailable, "stopping"});
  EXPECT_EQ(running->error().message, "stopping");
  EXPECT_EQ(queued->error().message, "stopping");
  EXPECT_EQ(a->all<protocol::Cancel>().size(), 1u);
}

TEST_F(Fleet, ARevokedNodeIsCutAndItsJobsGoElsewhere) {
  auto a = join("a", 1);
  auto client = ask();
  auto b = join("b", 1);
  dispatcher.close_revoked([](const ProviderRecord& record) { return record.node == "a"; });
  EXPECT_EQ(a->closed->param, "revoked_node");
  EXPECT_EQ(b->asked.size(), 1u);
  EXPECT_EQ(dispatcher.registry().num_providers(), 1u);
}

TEST_F(Fleet, ModelsAreThoseThatSomeNodeHasLoaded) {
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
