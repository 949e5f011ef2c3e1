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

TEST_F(Fleet, TheClientLearnsTheLengthOfThePromptAndTheStopThatMatched) {
  auto a = join("a");
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "x");
  EXPECT_EQ(client->events.at(0).prompt_tokens, 5);
  protocol::Finish message;
  message.reason = WireFinishReason::kStop;
  message.matched_stop = "END";
  message.num_ids = 1;
  say(*a, job, message);
  ASSERT_EQ(client->finishes().size(), 1u);
  EXPECT_EQ(client->finishes()[0].matched_stop, "END");
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

TEST_F(Fleet, ALongPromptOnASlowLineIsNotALateLease) {
  auto a = join("a", 1);
  auto client = ask();
  a->queued = 8u << 20;
  for (int i = 0; i < 10; ++i) {
    wait(limits.lease_timeout / 2);
    beat(*a);
  }
  EXPECT_THAT(a->all<protocol::Cancel>(), IsEmpty());
  a->queued = 0;
  wait(limits.lease_timeout / 2);
  beat(*a);
  const auto job = lease(*a);
  tokens(*a, job, 0, "x");
  finish(*a, job, 1);
  EXPECT_EQ(client->text(), "x");
  expect_idle();
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

}  // namespace
}  // namespace flotilla::coordinator
