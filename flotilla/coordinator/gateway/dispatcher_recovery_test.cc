// Answers that outlive their node.
#include "flotilla/coordinator/fleet_fixture.h"

namespace flotilla::coordinator {
namespace {

using protocol::RefuseReason;
using protocol::TextChannel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Reason = serving::ChatFinish::Reason;
using namespace std::chrono_literals;

class Recovery : public Fleet {
 protected:
  static protocol::Start start_of(const FakeNode& node) {
    const auto starts = node.all<protocol::Start>();
    if (starts.empty()) {
      ADD_FAILURE() << "not started";
      return {};
    }
    return starts.back();
  }
  void progress(FakeNode& node, std::vector<std::string> stuck = {}) {
    say(node, {}, protocol::Progress{std::move(stuck)});
  }
  // Time in small steps, with signs of life of `nodes`.
  void live(std::chrono::milliseconds time, const std::vector<FakeNode*>& nodes) {
    for (auto passed = 0ms; passed < time; passed += 100ms) {
      wait(100ms);
      for (FakeNode* node : nodes) progress(*node);
    }
  }
  static protocol::Register other_build(const std::string& digest, const std::string& numerics) {
    protocol::Register message;
    message.models = {offer("m", 4)};
    message.models[0].model_digest = digest;
    message.models[0].numerics_id = numerics;
    return message;
  }
};

TEST_F(Recovery, AStreamGoesOnElsewhereWhereItWasCut) {
  auto a = join("a");
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "hmm", TextChannel::kReasoning);
  tokens(*a, job, 1, "süß");
  protocol::Tokens call;
  call.first_index = 2;
  call.ids = {2};
  call.deltas = {{TextChannel::kToolCall, "{\"a\":", 0, "", "f"}};
  say(*a, job, call);
  auto b = join("b");
  lose(*a);
  ASSERT_EQ(b->asked.size(), 1u);
  EXPECT_EQ(b->asked[0].job, job.job);
  EXPECT_GT(b->asked[0].attempt, job.attempt);
  EXPECT_EQ(b->asked[0].prepare, job.prepare);  // seed and time included
  const auto again = lease(*b);
  const protocol::Start start = start_of(*b);
  EXPECT_THAT(start.resume_ids, ElementsAre(0, 1, 2));
  EXPECT_EQ(start.emitted.reasoning, 3u);
  EXPECT_EQ(start.emitted.content, 5u);
  EXPECT_THAT(start.emitted.tool_calls, ElementsAre(5));
  EXPECT_EQ(start.prompt_digest, "d");
  protocol::Tokens rest;
  rest.first_index = 3;
  rest.ids = {3, 4};
  rest.deltas = {{TextChannel::kToolCall, "1}", 0, "", ""}};
  say(*b, again, rest);
  finish(*b, again, 2);
  EXPECT_EQ(client->text(), "hmmsüß{\"a\":1}");
  std::vector<std::string> ids;
  std::vector<std::int32_t> tokens_seen;
  for (const auto& event : client->events) {
    for (const auto& delta : event.deltas) {
      if (!delta.call_id.empty()) ids.push_back(delta.call_id);
    }
    tokens_seen.insert(tokens_seen.end(), event.ids.begin(), event.ids.end());
  }
  EXPECT_THAT(ids, ElementsAre(protocol::tool_call_id(job.job, 0)));  // named once
  EXPECT_THAT(tokens_seen, ElementsAre(0, 1, 2, 3, 4));
  const auto end = client->finishes().at(0);
  EXPECT_FALSE(end.error);
  EXPECT_EQ(end.reason, Reason::kToolCalls);
  EXPECT_EQ(end.usage.completion_tokens, 5);
  EXPECT_THAT(metrics.render(), HasSubstr("answers_continued_total{numerics=\"same\"} 1"));
  expect_idle();
}

TEST_F(Recovery, AnAnswerThatIsNotStreamedGoesOnTooAndIsSeenOnce) {
  auto a = join("a");
  auto client = ask(false);
  tokens(*a, lease(*a), 0, "one ");
  auto b = join("b");
  lose(*a);
  const auto again = lease(*b);
  EXPECT_THAT(start_of(*b).resume_ids, ElementsAre(0));
  tokens(*b, again, 1, "two");
  EXPECT_THAT(client->events, IsEmpty());
  finish(*b, again, 1);
  EXPECT_EQ(client->text(), "one two");
  EXPECT_EQ(client->finishes().at(0).usage.completion_tokens, 2);
  expect_idle();
}

TEST_F(Recovery, ItOutlivesManyNodes) {
  auto node = join("n0", 1);
  auto client = ask();
  std::string expected;
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(node->asked.size(), 1u) << i;
    const auto job = lease(*node);
    tokens(*node, job, i, "x");
    expected += "x";
    auto next = join("n" + std::to_string(i + 1), 1);
    lose(*node);
    node = next;
  }
  const auto job = lease(*node);
  finish(*node, job, 0);
  EXPECT_EQ(client->text(), expected);
  EXPECT_FALSE(client->finishes().at(0).error);
}

TEST_F(Recovery, ALossWithoutATokenBetweenCountsAgainstTheRequest) {
  std::vector<std::shared_ptr<FakeNode>> nodes;
  for (int i = 0; i < 10; ++i) nodes.push_back(join("n" + std::to_string(i)));
  auto client = ask();
  std::size_t lost = 0;
  for (int turn = 0; turn < 20 && client->finishes().empty(); ++turn) {
    for (auto& node : nodes) {
      if (!node || node->asked.empty()) continue;
      const auto job = lease(*node, node->asked.size() - 1);
      if (lost == 0) tokens(*node, job, 0, "x");
      lose(*node);
      node.reset();
      ++lost;
      break;
    }
  }
  EXPECT_EQ(lost, limits.max_failures);  // the first loss came with a token, but after it
  EXPECT_EQ(client->error().code, ErrorCode::kUnavailable);
}

// Many jobs die with one node: none of them is taken for the cause too soon.
TEST_F(Recovery, JobsThatShareANodeShareTheBlame) {
  std::vector<std::shared_ptr<FakeClient>> clients;
  auto node = join("n0", 8);
  for (int i = 0; i < 8; ++i) clients.push_back(ask());
  for (int i = 1; i <= 10; ++i) {
    auto next = join("n" + std::to_string(i), 8);
    lose(*node);
    node = next;
  }
  for (const auto& client : clients) EXPECT_THAT(client->finishes(), IsEmpty());
  EXPECT_EQ(node->asked.size(), 8u);
}

TEST_F(Recovery, FramesOfTheLostAttemptAreDropped) {
  auto a = join_lively("a"), b = join_lively("b");
  auto client = ask();
  FakeNode& first = a->asked.empty() ? *b : *a;
  FakeNode& second = a->asked.empty() ? *a : *b;
  const auto old = lease(first);
  tokens(first, old, 0, "one ");
  live(1200ms, {&second});
  ASSERT_EQ(second.asked.size(), 1u);
  const auto job = lease(second);
  tokens(first, old, 1, "WRONG");  // it wakes up
  tokens(second, job, 1, "two");
  finish(first, old, 2);
  finish(second, job, 1);
  EXPECT_EQ(client->text(), "one two");
  say(first, old, protocol::CancelAck{});
  expect_idle();
}

TEST_F(Recovery, OnlyTheSameWeightsContinueAnAnswerThatWasSeen) {
  auto a = join("a");
  auto client = ask();
  tokens(*a, lease(*a), 0, "x");
  auto other = join("b", other_build("other weights", "cpu"));
  lose(*a);
  EXPECT_THAT(other->asked, IsEmpty());
  wait(5s);
  beat(*other);
  auto back = join("c");
  ASSERT_EQ(back->asked.size(), 1u);
  const auto job = lease(*back);
  finish(*back, job, 0);
  EXPECT_EQ(client->text(), "x");
  EXPECT_FALSE(client->finishes().at(0).error);
}

TEST_F(Recovery, WhatNobodyHasSeenMayBeginAnewWithOtherWeights) {
  auto a = join("a");
  auto client = ask(false);
  tokens(*a, lease(*a), 0, "old");
  auto other = join("b", other_build("other weights", "cpu"));
  lose(*a);
  ASSERT_EQ(other->asked.size(), 1u);
  const auto job = lease(*other);
  EXPECT_THAT(start_of(*other).resume_ids, IsEmpty());
  tokens(*other, job, 0, "new");
  finish(*other, job, 1);
  EXPECT_EQ(client->text(), "new");
  EXPECT_EQ(client->finishes().at(0).usage.completion_tokens, 1);
}

TEST_F(Recovery, EqualNumericsArePreferredAndAMixIsMarked) {
  auto a = join("a");
  auto client = ask();
  tokens(*a, lease(*a), 0, "x");
  auto gpu = join("gpu", other_build("weights of m", "gpu"));
  auto cpu = join("cpu", 1);
  lose(*a);
  EXPECT_THAT(gpu->asked, IsEmpty());
  ASSERT_EQ(cpu->asked.size(), 1u);
  tokens(*cpu, lease(*cpu), 1, "y");
  lose(*cpu);
  ASSERT_EQ(gpu->asked.size(), 1u);
  const auto job = lease(*gpu);
  EXPECT_THAT(metrics.render(), HasSubstr("answers_continued_total{numerics=\"mixed\"} 1"));
  EXPECT_TRUE(dispatcher.table().job(job.job)->mixed_numerics);
  finish(*gpu, job, 0);
  EXPECT_EQ(client->text(), "xy");
}

TEST_F(Recovery, AnotherPromptIsNoContinuation) {
  auto a = join("a");
  auto client = ask();
  tokens(*a, lease(*a), 0, "x");
  auto b = join("b");
  lose(*a);
  lease(*b, 0, "another prompt");
  EXPECT_THAT(b->all<protocol::Start>(), IsEmpty());
  EXPECT_EQ(b->all<protocol::Cancel>().size(), 1u);
  EXPECT_THAT(client->error().message, HasSubstr("cannot continue its answer exactly"));
  say(*b, b->asked[0], protocol::CancelAck{});
  expect_idle();
}

TEST_F(Recovery, WithoutAnyNodeOneErrorEndsTheStreamInTime) {
  auto a = join("a");
  auto client = ask();
  tokens(*a, lease(*a), 0, "x");
  wait(10s);
  beat(*a);
  lose(*a);
  wait(limits.queue_timeout - 1s);
  EXPECT_THAT(client->finishes(), IsEmpty());
  wait(1s);
  EXPECT_EQ(client->error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(client->error().message, HasSubstr("no other could continue"));
  expect_idle();
}

TEST_F(Recovery, AStreamWaitsForItsOnlyNode) {
  auto a = join("a");
  auto client = ask();
  tokens(*a, lease(*a), 0, "x");
  lose(*a);
  wait(5s);
  auto back = join("a");
  ASSERT_EQ(back->asked.size(), 1u);
  const auto job = lease(*back);
  EXPECT_THAT(start_of(*back).resume_ids, ElementsAre(0));
  tokens(*back, job, 1, "y");
  finish(*back, job, 1);
  EXPECT_EQ(client->text(), "xy");
}

TEST_F(Recovery, ARefusalOfTheContinuationGoesToAnotherNode) {
  auto a = join("a");
  auto client = ask();
  tokens(*a, lease(*a), 0, "x");
  auto b = join("b"), c = join("c");
  lose(*a);
  FakeNode& first = b->asked.empty() ? *c : *b;
  FakeNode& second = b->asked.empty() ? *b : *c;
  // Its context is smaller, say: that is no reason to tell the client.
  refuse(first, 0, RefuseReason::kInvalidRequest, {ErrorCode::kContextLength, "too long for me"});
  ASSERT_EQ(second.asked.size(), 1u);
  const auto job = lease(second);
  finish(second, job, 0);
  EXPECT_EQ(client->text(), "x");
  EXPECT_FALSE(client->finishes().at(0).error);
}

TEST_F(Recovery, ASilentNodeIsReplacedWithinASecond) {
  auto a = join_lively("a", 1);
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "x");
  auto b = join_lively("b", 1);
  live(900ms, {b.get()});
  EXPECT_THAT(b->asked, IsEmpty());
  live(200ms, {b.get()});
  ASSERT_EQ(b->asked.size(), 1u);
  EXPECT_FALSE(a->closed);  // the link counts as alive
  EXPECT_EQ(a->all<protocol::Cancel>().size(), 1u);
  EXPECT_THAT(metrics.render(), HasSubstr("flotilla_nodes_silent_total 1"));
}

TEST_F(Recovery, ALongPrefillThatShowsProgressIsNotSilence) {
  auto a = join_lively("a", 1), b = join_lively("b", 1);
  auto client = ask();
  FakeNode& node = a->asked.empty() ? *b : *a;
  lease(node);
  live(20s, {a.get(), b.get()});
  EXPECT_THAT(node.all<protocol::Cancel>(), IsEmpty());
}

TEST_F(Recovery, AModelThatIsStuckLosesItsJobsTheNodesOtherModelsDoNot) {
  protocol::Register message;
  message.models = {offer("m", 4), offer("other", 4)};
  message.progress_interval_ms = 250;
  auto a = join("a", message);
  auto client = ask(), neighbour = ask(true, 1, "other");
  tokens(*a, lease(*a, 0), 0, "x");
  tokens(*a, lease(*a, 1), 0, "y");
  auto b = join_lively("b");
  progress(*a, {"m"});
  ASSERT_EQ(b->asked.size(), 1u);
  EXPECT_EQ(a->all<protocol::Cancel>().size(), 1u);
  auto next = ask();
  EXPECT_EQ(b->asked.size(), 2u);
  EXPECT_EQ(ask(true, 1, "other")->events.size(), 0u);
  EXPECT_EQ(a->asked.size(), 3u);
}

TEST_F(Recovery, AStalledNodeThatWakesUpIsAvoidedForAWhileThenForgiven) {
  auto a = join_lively("a"), b = join_lively("b");
  std::vector<std::shared_ptr<FakeClient>> clients;
  clients.push_back(ask());
  FakeNode& slept = a->asked.empty() ? *b : *a;
  FakeNode& awake = a->asked.empty() ? *a : *b;
  live(2200ms, {&awake});
  ASSERT_EQ(awake.asked.size(), 1u);
  progress(slept);
  say(slept, slept.asked[0], protocol::CancelAck{});
  clients.push_back(ask());
  clients.push_back(ask());
  EXPECT_EQ(slept.asked.size(), 1u);
  EXPECT_EQ(awake.asked.size(), 3u);
  live(300ms, {&awake, &slept});
  clients.push_back(ask());
  ASSERT_EQ(slept.asked.size(), 2u);
  finish(slept, lease(slept, 1), 0);
}

TEST_F(Recovery, AfterOneFaultAFreeSlotIsTakenWhereNoOtherIs) {
  auto b = join_lively("b", 1);
  auto busy = ask();
  auto a = join_lively("a", 1);
  lose(*a);
  a = join_lively("a", 1);
  auto client = ask();
  EXPECT_EQ(a->asked.size(), 1u);
}

TEST_F(Recovery, AfterSeveralFaultsANodeRestsLongerEachTimeUntilItHasSuccess) {
  auto b = join_lively("b", 1);
  auto busy = ask();  // b stays the sound node of the model, though it has no slot
  auto a = join_lively("a", 1);
  for (int i = 0; i < 2; ++i) {
    lose(*a);
    a = join_lively("a", 1);
  }
  for (const auto expected : {1000ms, 2000ms, 4000ms}) {
    lose(*a);
    a = join_lively("a", 1);
    auto client = ask();
    live(expected - 150ms, {b.get(), a.get()});
    EXPECT_THAT(a->asked, IsEmpty()) << expected.count();
    live(200ms, {b.get(), a.get()});
    ASSERT_EQ(a->asked.size(), 1u) << expected.count();
    dispatcher.cancel(client->id);
  }
  say(*a, a->asked[0], protocol::CancelAck{});
  auto client = ask();
  finish(*a, lease(*a, 1), 0);
  lose(*a);
  a = join_lively("a", 1);
  auto last = ask();
  EXPECT_EQ(a->asked.size(), 1u);
}

TEST_F(Recovery, TheOnlyNodeKeepsItsJobsWhileItIsSilentAndGoesOn) {
  auto a = join_lively("a");
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "x");
  live(3s, {});
  EXPECT_THAT(a->all<protocol::Cancel>(), IsEmpty());
  auto late = ask();  // waits: nobody gives work to a node that does not speak
  EXPECT_EQ(a->asked.size(), 1u);
  tokens(*a, job, 1, "y");
  EXPECT_EQ(a->asked.size(), 2u);
  finish(*a, job, 2);
  EXPECT_EQ(client->text(), "xy");
  finish(*a, lease(*a, 1), 0);
  expect_idle();
}

TEST_F(Recovery, ANodeThatJoinsTakesTheJobsOfASilentOne) {
  auto a = join_lively("a");
  auto client = ask();
  tokens(*a, lease(*a), 0, "x");
  live(2s, {});
  auto b = join_lively("b");
  wait(100ms);
  ASSERT_EQ(b->asked.size(), 1u);
  lease(*b);
  EXPECT_THAT(start_of(*b).resume_ids, ElementsAre(0));
}

TEST_F(Recovery, ThisProcessesOwnPauseBlamesNobody) {
  limits.slept_through = 500ms;
  Dispatcher patient(clock, metrics, limits, [] {});
  auto node = std::make_shared<FakeNode>();
  node->id = ProviderId{"id"};
  protocol::Register message;
  message.models = {offer("m", 4)};
  message.progress_interval_ms = 250;
  patient.node_joined({node->id, "n", node}, message);
  clock.advance(1s);
  patient.tick();
  clock.advance(20s);  // longer than a node may be silent
  patient.tick();
  EXPECT_FALSE(node->closed);
  for (int i = 0; i < 149; ++i) {
    clock.advance(100ms);
    patient.tick();
  }
  EXPECT_FALSE(node->closed);
  clock.advance(100ms);
  patient.tick();
  EXPECT_TRUE(node->closed);
}

TEST_F(Recovery, ADrainingNodeHandsOverWhatItDoesNotFinishInTime) {
  auto a = join("a", 2);
  auto quick = ask(), slow = ask();
  const auto quick_job = lease(*a, 0), slow_job = lease(*a, 1);
  tokens(*a, quick_job, 0, "q");
  tokens(*a, slow_job, 0, "s");
  auto b = join("b", 2);
  protocol::Drain drain;
  drain.deadline_ms = 10'000;
  say(*a, {}, drain);
  wait(1s);
  finish(*a, quick_job, 1);
  EXPECT_THAT(b->asked, IsEmpty());
  wait(7s);
  ASSERT_EQ(b->asked.size(), 1u);
  EXPECT_EQ(a->all<protocol::Cancel>().size(), 1u);
  say(*a, slow_job, protocol::CancelAck{});
  const auto job = lease(*b);
  EXPECT_THAT(start_of(*b).resume_ids, ElementsAre(0));
  tokens(*b, job, 1, "t");
  finish(*b, job, 1);
  EXPECT_EQ(slow->text(), "st");
  EXPECT_FALSE(slow->finishes().at(0).error);
  expect_idle();
}

TEST_F(Recovery, ADrainingNodeKeepsItsJobsWhileNobodyElseHasRoom) {
  auto a = join("a", 1);
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "x");
  protocol::Drain drain;
  drain.deadline_ms = 1'000;
  say(*a, {}, drain);
  wait(500ms);
  EXPECT_THAT(a->all<protocol::Cancel>(), IsEmpty());
  tokens(*a, job, 1, "y");
  lose(*a);
  auto b = join("b", 1);
  ASSERT_EQ(b->asked.size(), 1u);
  lease(*b);
  EXPECT_THAT(start_of(*b).resume_ids, ElementsAre(0, 1));
}

TEST_F(Recovery, APausedClientStaysPausedOnTheNextNode) {
  auto a = join("a");
  auto client = ask();
  client->takes_more = false;
  tokens(*a, lease(*a), 0, "x");
  auto b = join("b");
  lose(*a);
  lease(*b);
  ASSERT_EQ(b->all<protocol::Flow>().size(), 1u);
  EXPECT_TRUE(b->all<protocol::Flow>()[0].paused);
}

TEST_F(Recovery, SpeedIsRememberedOverConnections) {
  auto a = join("a");
  protocol::Heartbeat beat;
  protocol::SlotLoad slot;
  slot.model = "m";
  slot.decode_tokens_per_s = 42;
  beat.slots = {slot};
  say(*a, {}, beat);
  lose(*a);
  auto back = join("a");
  const auto speed = [&] {
    return dispatcher.registry().find(back->id)->slots.at("m").load.decode_tokens_per_s;
  };
  EXPECT_EQ(speed(), 42);
  beat.slots[0].decode_tokens_per_s = 0;  // a fresh process does not know yet
  say(*back, {}, beat);
  EXPECT_EQ(speed(), 42);
}

}  // namespace
}  // namespace flotilla::coordinator
