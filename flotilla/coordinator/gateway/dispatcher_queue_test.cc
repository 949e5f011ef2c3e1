// Requests that wait: how long, in which order, and who goes first.
#include "flotilla/coordinator/fleet_fixture.h"

namespace flotilla::coordinator {
namespace {

using protocol::RefuseReason;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

class Queue : public Fleet {};

TEST_F(Queue, APromptTooLongForOneNodeGoesToOneWithMoreRoom) {
  protocol::Register small, large;
  small.models = large.models = {offer("m", 1)};
  small.models[0].context_length = 128;
  large.models[0].context_length = 4096;
  const Error too_long{ErrorCode::kContextLength, "the prompt has 500 tokens, the limit is 128"};
  auto a = join("a", small);
  auto client = ask();
  auto b = join("b", large);
  refuse(*a, 0, RefuseReason::kInvalidRequest, too_long);
  EXPECT_THAT(client->events, IsEmpty());
  ASSERT_EQ(b->asked.size(), 1u);
  auto waits = ask();
  ASSERT_EQ(a->asked.size(), 2u);
  refuse(*a, 1, RefuseReason::kInvalidRequest, too_long);
  EXPECT_THAT(waits->events, IsEmpty()) << "b has no slot now";
  finish(*b, lease(*b), 0);
  ASSERT_EQ(b->asked.size(), 2u);
  finish(*b, lease(*b, 1), 0);
  EXPECT_FALSE(client->finishes().at(0).error);
  EXPECT_FALSE(waits->finishes().at(0).error);
  // Where nobody has more room, the refusal is the answer.
  lose(*b);
  auto last = ask();
  refuse(*a, 2, RefuseReason::kInvalidRequest, too_long);
  EXPECT_EQ(last->error().code, ErrorCode::kContextLength);
  expect_idle();
}

TEST_F(Queue, AModelKnownFromBeforeWaitsForItsNodeAndIsThenUnavailable) {
  dispatcher.know_model("m");
  auto first = ask(), second = ask();
  EXPECT_THAT(first->events, IsEmpty());
  dispatcher.cancel(second->id);
  wait(5s);
  auto a = join("a");
  ASSERT_EQ(a->asked.size(), 1u);
  finish(*a, lease(*a), 0);
  lose(*a);
  auto late = ask();
  wait(limits.queue_timeout);
  EXPECT_EQ(late->error().code, ErrorCode::kUnavailable);
  auto other = join("b", 1, {"other"});
  EXPECT_EQ(ask(true, 1, "nope")->error().code, ErrorCode::kNotFound);
  expect_idle();
}

TEST_F(Queue, ARefusalDoesNotMoveTheDeadlineOfARequest) {
  auto a = join("a", 1);
  auto client = ask();
  for (std::size_t i = 0; i < 100 && client->events.empty(); ++i) {
    if (a->asked.size() > i)
      refuse(*a, i, RefuseReason::kBusy, {ErrorCode::kResourceExhausted, "full"}, 500);
    wait(500ms);
    beat(*a);
  }
  EXPECT_EQ(client->error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(clock.now() - Clock::Instant{}, limits.queue_timeout);
}

// Nor when the node changes its mind after the start, and again, and again.
TEST_F(Queue, ARefusalAfterTheStartDoesNotMoveItEither) {
  auto a = join("a");
  auto client = ask();
  const auto job = lease(*a);
  tokens(*a, job, 0, "x");
  auto b = join("b");
  lose(*a);
  std::size_t i = 0;
  for (auto passed = 0ms; passed < limits.queue_timeout + 2s; passed += 100ms) {
    if (i < b->asked.size()) {
      lease(*b, i);
      refuse(*b, i++, RefuseReason::kBusy, {ErrorCode::kUnavailable, "not now"});
    }
    wait(100ms);
  }
  EXPECT_GT(i, 3u);
  EXPECT_THAT(client->error().message, HasSubstr("no other could continue its answer within 30 s"));
  expect_idle();
}

TEST_F(Queue, AKeyWithManyWaitingDoesNotHoldUpAnothersFew) {
  auto a = join("a", 1);
  auto running = ask(true, 1, "m", 1);
  std::vector<std::shared_ptr<FakeClient>> many;
  for (int i = 0; i < 500; ++i) many.push_back(ask(true, 1, "m", 1));
  auto few = ask(true, 1, "m", 2);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto job = lease(*a, i);
    tokens(*a, job, 0, "x");
    finish(*a, job, 1);
  }
  EXPECT_EQ(few->text(), "x");
  EXPECT_EQ(many[0]->text(), "x");
  EXPECT_THAT(many[1]->events, IsEmpty());
}

TEST_F(Queue, AFullQueueMakesRoomForAKeyThatHasLess) {
  auto a = join("a", 1);
  auto running = ask(true, 1, "m", 1);
  std::vector<std::shared_ptr<FakeClient>> many;
  for (std::size_t i = 0; i < limits.max_queued_per_model; ++i)
    many.push_back(ask(true, 1, "m", 1));
  auto other = ask(true, 1, "m", 2);
  EXPECT_THAT(other->events, IsEmpty());
  EXPECT_EQ(many.back()->error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(ask(true, 1, "m", 1)->error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(dispatcher.num_queued(), limits.max_queued_per_model);
}

TEST_F(Queue, ThoseWhoLostTheirNodeGoBeforeThoseWhoHadNone) {
  auto a = join("a", 1);
  auto first = ask();
  tokens(*a, lease(*a), 0, "x");
  auto second = ask();
  lose(*a);
  auto b = join("b", 1);
  ASSERT_EQ(b->asked.size(), 1u);
  lease(*b);
  EXPECT_THAT(b->all<protocol::Start>().back().resume_ids, ElementsAre(0));
}

}  // namespace
}  // namespace flotilla::coordinator
