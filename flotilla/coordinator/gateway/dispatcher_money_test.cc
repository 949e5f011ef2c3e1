// When jobs are paid for.
#include <gmock/gmock.h>

#include <limits>

#include "flotilla/coordinator/fleet_fixture.h"

namespace flotilla::coordinator {
namespace {

using protocol::WireFinishReason;

// Answers when it is told to.
struct FakeTill final : Till {
  bool must_hold(const std::string&, AccountId payer, const ProviderId& node) const override {
    return is_paid && !(own_node && *own_node == node && payer.value == 9);
  }
  void hold(ReserveOrder order, std::function<void(Result<Reservation>)> done) override {
    asked.push_back(std::move(order));
    answers.push_back(std::move(done));
  }
  void continued_on(const JobId&, const ProviderId& node) override { moved.push_back(node.value); }
  void delivered(const JobId& job, const TokenCounts& so_far) override { marks[job] = so_far; }
  void end(EndedJob job) override { ended.push_back(std::move(job)); }
  void say_yes(std::size_t i = 0) { answers.at(i)(Reservation{1, 100}); }
  void say_no(std::size_t i = 0) {
    answers.at(i)(Error{ErrorCode::kInsufficientFunds, "too little"});
  }

  bool is_paid = true;
  std::optional<ProviderId> own_node;
  std::vector<ReserveOrder> asked;
  std::vector<std::function<void(Result<Reservation>)>> answers;
  std::vector<EndedJob> ended;
  std::unordered_map<JobId, TokenCounts> marks;
  std::vector<std::string> moved;
};

class MoneyFleet : public Fleet {
 protected:
  MoneyFleet() { dispatcher.set_till(&till); }
  std::shared_ptr<FakeClient> ask_paid(bool stream = true, std::uint32_t n = 1,
                                       bool is_free = false) {
    auto client = std::make_shared<FakeClient>();
    client->id = RequestId{++num_requests};
    auto prepare = std::make_shared<protocol::Prepare>();
    prepare->model = "m";
    const auto sink = [client](serving::ChatEvent event) {
      client->events.push_back(std::move(event));
      return client->takes_more;
    };
    Admission admission{client->id, "req", stream, n, prepare, sink, 4};
    admission.account = AccountId{9};
    admission.is_free = is_free;
    dispatcher.submit(std::move(admission));
    return client;
  }
  static std::size_t num_starts(const FakeNode& node) { return node.all<protocol::Start>().size(); }
  FakeTill till;
};

TEST_F(MoneyFleet, AJobStartsWhenItsWorstCaseIsHeld) {
  const auto node = join("a");
  const auto client = ask_paid();
  const auto asked = lease(*node);
  ASSERT_EQ(till.asked.size(), 1u);
  EXPECT_EQ(till.asked[0].job, asked.job);
  EXPECT_EQ(till.asked[0].account.value, 9u);
  EXPECT_EQ(till.asked[0].key.value, 4u);
  EXPECT_EQ(till.asked[0].prompt_tokens, 5);
  EXPECT_EQ(till.asked[0].max_output_tokens, 4'091) << "no less than the context has room for";
  EXPECT_TRUE(till.asked[0].streamed);
  EXPECT_EQ(num_starts(*node), 0u);
  till.say_yes();
  EXPECT_EQ(num_starts(*node), 1u);
  tokens(*node, asked, 0, "a");
  tokens(*node, asked, 1, "b");
  finish(*node, asked, 2);
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_TRUE(till.ended[0].delivered);
  EXPECT_EQ(till.ended[0].reservation.amount, 100);
  EXPECT_EQ(till.ended[0].tokens, (TokenCounts{5, 0, 2}));
  EXPECT_EQ(till.ended[0].outcome, "ok");
  ASSERT_EQ(till.ended[0].served.size(), 1u);
  EXPECT_EQ(till.ended[0].served[0].second, 2u);
  expect_idle();
}

TEST_F(MoneyFleet, TheNodesOwnBoundIsTheWorstCase) {
  const auto node = join("a");
  const auto client = ask_paid();
  protocol::Lease granted;
  granted.prompt_tokens = 7;
  granted.granted_tokens = 33;
  say(*node, node->asked.at(0), granted);
  EXPECT_EQ(till.asked.at(0).prompt_tokens, 7);
  EXPECT_EQ(till.asked.at(0).max_output_tokens, 33);
}

TEST_F(MoneyFleet, TooLittleMoneyEndsTheJobBeforeItStarts) {
  const auto node = join("a");
  const auto client = ask_paid();
  const auto asked = lease(*node);
  till.say_no();
  EXPECT_EQ(client->error().code, ErrorCode::kInsufficientFunds);
  EXPECT_EQ(num_starts(*node), 0u);
  EXPECT_EQ(node->all<protocol::Cancel>().size(), 1u);
  say(*node, asked, protocol::CancelAck{});
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_FALSE(till.ended[0].reservation.held());
  EXPECT_FALSE(till.ended[0].delivered);
  expect_idle();
}

TEST_F(MoneyFleet, WhatIsHeldForAJobThatWasCancelledGoesBack) {
  const auto node = join("a");
  const auto client = ask_paid();
  const auto asked = lease(*node);
  dispatcher.cancel(client->id);
  say(*node, asked, protocol::CancelAck{});
  ASSERT_EQ(till.ended.size(), 1u) << "nothing was held when it ended";
  till.say_yes();
  ASSERT_EQ(till.ended.size(), 2u);
  EXPECT_EQ(till.ended[1].job, asked.job);
  EXPECT_TRUE(till.ended[1].reservation.held());
  EXPECT_FALSE(till.ended[1].delivered);
  EXPECT_EQ(num_starts(*node), 0u);
  expect_idle();
}

TEST_F(MoneyFleet, ANodeLostWhileMoneyIsAskedForDoesNotAskTwice) {
  const auto first = join("a");
  const auto client = ask_paid();
  lease(*first);
  const auto second = join("b");
  lose(*first);
  lease(*second);
  EXPECT_EQ(till.asked.size(), 1u);
  EXPECT_EQ(num_starts(*second), 0u);
  till.say_yes();
  EXPECT_EQ(num_starts(*second), 1u);
}

TEST_F(MoneyFleet, MoneyThatArrivesWhileTheJobWaitsForANodeStaysHeld) {
  const auto first = join("a");
  const auto client = ask_paid();
  lease(*first);
  lose(*first);
  till.say_yes();
  const auto second = join("b");
  lease(*second);
  EXPECT_EQ(till.asked.size(), 1u);
  EXPECT_EQ(num_starts(*second), 1u);
}

TEST_F(MoneyFleet, ARefusalThatArrivesWhileTheJobWaitsForANodeEndsIt) {
  const auto first = join("a");
  const auto client = ask_paid();
  lease(*first);
  lose(*first);
  till.say_no();
  EXPECT_EQ(client->error().code, ErrorCode::kInsufficientFunds);
  expect_idle();
}

TEST_F(MoneyFleet, ASlowBankIsNotTheNodesFault) {
  const auto node = join_lively("a");
  const auto client = ask_paid();
  lease(*node);
  for (int i = 0; i < 35; ++i) {
    say(*node, {}, protocol::Progress{});
    wait(std::chrono::milliseconds(200));
  }
  till.say_yes();
  EXPECT_EQ(num_starts(*node), 1u);
}

// "No token charged twice", whatever number of nodes served it.
TEST_F(MoneyFleet, AnAnswerOfTwoNodesIsPaidOnceAndDividedByTokens) {
  const auto first = join("a");
  const auto client = ask_paid();
  const auto before = lease(*first);
  till.say_yes();
  tokens(*first, before, 0, "one ");
  tokens(*first, before, 1, "two ");
  const auto second = join("b");
  lose(*first);
  const auto after = lease(*second);
  EXPECT_EQ(till.asked.size(), 1u) << "it is held already";
  tokens(*second, after, 2, "three");
  finish(*second, after, 1);
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_EQ(till.ended[0].tokens, (TokenCounts{5, 0, 3}));
  ASSERT_EQ(till.ended[0].served.size(), 2u);
  EXPECT_EQ(till.ended[0].served[0], (std::pair<ProviderId, std::uint64_t>(first->id, 2)));
  EXPECT_EQ(till.ended[0].served[1], (std::pair<ProviderId, std::uint64_t>(second->id, 1)));
}

TEST_F(MoneyFleet, LostForGoodAfterContentIsChargedAsDelivered) {
  const auto node = join("a");
  const auto client = ask_paid();
  const auto asked = lease(*node);
  till.say_yes();
  tokens(*node, asked, 0, "one");
  lose(*node);
  wait(limits.queue_timeout + std::chrono::seconds(1));
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_TRUE(till.ended[0].delivered);
  EXPECT_EQ(till.ended[0].tokens, (TokenCounts{5, 0, 1}));
}

// B103: everything at once, and twice.
TEST_F(MoneyFleet, HoweverAJobEndsItIsSettledOnce) {
  const auto node = join("a");
  const auto client = ask_paid();
  const auto asked = lease(*node);
  till.say_yes();
  tokens(*node, asked, 0, "one");
  finish(*node, asked, 1);
  finish(*node, asked, 1);
  fail(*node, asked, {ErrorCode::kInternal, "after the end"});
  dispatcher.cancel(client->id);
  lose(*node);
  wait(limits.stall_timeout + std::chrono::seconds(1));
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_EQ(till.ended[0].tokens, (TokenCounts{5, 0, 1}));
  const auto other = join("b");
  const auto left = ask_paid();
  const auto again = lease(*other);
  till.say_yes(1);
  tokens(*other, again, 0, "one");
  dispatcher.cancel(left->id);
  dispatcher.cancel(left->id);
  fail(*other, again, {ErrorCode::kInternal, "crossed the cancel"});
  lose(*other);
  wait(limits.stall_timeout + std::chrono::seconds(1));
  ASSERT_EQ(till.ended.size(), 2u);
  EXPECT_EQ(till.ended[1].outcome, "cancelled");
  expect_idle();
}

TEST_F(MoneyFleet, AClientThatLeavesPaysForWhatItGot) {
  const auto node = join("a");
  const auto client = ask_paid();
  const auto asked = lease(*node);
  till.say_yes();
  tokens(*node, asked, 0, "one");
  dispatcher.cancel(client->id);
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_EQ(till.ended[0].tokens.output, 1);
  EXPECT_EQ(till.ended[0].outcome, "cancelled");
}

TEST_F(MoneyFleet, WhatNobodyHasSeenIsNotCharged) {
  const auto node = join("a");
  const auto whole = ask_paid(false);
  const auto asked = lease(*node);
  till.say_yes();
  tokens(*node, asked, 0, "one");
  dispatcher.cancel(whole->id);
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_FALSE(till.ended[0].delivered);
  EXPECT_TRUE(till.ended[0].reservation.held());
  const auto failed = ask_paid();
  const auto again = lease(*node, 1);
  till.say_yes(1);
  fail(*node, again, {ErrorCode::kInvalidArgument, "no"});
  ASSERT_EQ(till.ended.size(), 2u);
  EXPECT_FALSE(till.ended[1].delivered);
}

TEST_F(MoneyFleet, ChoicesShareThePrompt) {
  const auto node = join("a");
  const auto client = ask_paid(false, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto asked = lease(*node, i);
    till.say_yes(i);
    tokens(*node, asked, 0, "x");
    finish(*node, asked, 1);
  }
  EXPECT_TRUE(till.ended.empty()) << "the client has nothing yet";
  dispatcher.taken(client->id);
  ASSERT_EQ(till.ended.size(), 2u);
  EXPECT_TRUE(till.ended[0].delivered && till.ended[1].delivered);
  EXPECT_EQ(till.asked[0].prompt_tokens + till.asked[1].prompt_tokens, 5);
  EXPECT_EQ(till.ended[0].tokens.prompt + till.ended[1].tokens.prompt, 5);
}

// One choice fails, the client gets an error: nothing of the others reaches it.
TEST_F(MoneyFleet, AnAnswerThatFailsInOnePartIsNotPaidForInTheOthers) {
  const auto node = join("a");
  const auto client = ask_paid(false, 2);
  const auto first = lease(*node, 0), second = lease(*node, 1);
  till.say_yes(0);
  till.say_yes(1);
  tokens(*node, first, 0, "x");
  finish(*node, first, 1);
  fail(*node, second, {ErrorCode::kInvalidArgument, "no"});
  dispatcher.cancel(client->id);  // as a session does when it has told its client
  ASSERT_EQ(till.ended.size(), 2u);
  for (const EndedJob& ended : till.ended) {
    EXPECT_TRUE(ended.reservation.held());
    EXPECT_FALSE(ended.delivered) << ended.outcome;
    EXPECT_EQ(ended.tokens, TokenCounts{});
  }
  expect_idle();
}

TEST_F(MoneyFleet, AWholeAnswerThatNobodyTakesIsNotPaidFor) {
  const auto node = join("a");
  const auto client = ask_paid(false);
  const auto asked = lease(*node);
  till.say_yes();
  tokens(*node, asked, 0, "x");
  finish(*node, asked, 1);
  EXPECT_EQ(dispatcher.table().num_requests(), 1u);
  dispatcher.cancel(client->id);
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_FALSE(till.ended[0].delivered);
  expect_idle();
}

// It ended on the node while its reader had stopped to read.
TEST_F(MoneyFleet, OfAStreamOnlyWhatWasHandedOverIsPaidFor) {
  for (const bool reads_on : {false, true}) {
    const auto node = join("a");
    const auto client = ask_paid();
    const auto asked = lease(*node);
    till.say_yes(till.asked.size() - 1);
    tokens(*node, asked, 0, "a");
    client->takes_more = false;
    tokens(*node, asked, 1, "b");  // taken, but no more
    tokens(*node, asked, 2, "c");
    finish(*node, asked, 3);
    const std::size_t before = till.ended.size();
    if (reads_on) {
      client->takes_more = true;
      dispatcher.resume(client->id);
      EXPECT_EQ(client->text(), "abc");
    }
    dispatcher.cancel(client->id);
    ASSERT_EQ(till.ended.size(), before + 1);
    EXPECT_TRUE(till.ended.back().delivered);
    EXPECT_EQ(till.ended.back().tokens, (TokenCounts{5, 0, reads_on ? 3 : 2}));
    lose(*node);
  }
  expect_idle();
}

TEST_F(MoneyFleet, HowFarAStreamHasComeIsMarkedNowAndThen) {
  const auto node = join("a");
  const auto client = ask_paid(), whole = ask_paid(false);
  const auto asked = lease(*node), other = lease(*node, 1);
  till.say_yes(0);
  till.say_yes(1);
  wait(std::chrono::milliseconds(1'000));
  EXPECT_TRUE(till.marks.empty());
  tokens(*node, asked, 0, "a");
  tokens(*node, other, 0, "a");
  wait(std::chrono::milliseconds(100));
  ASSERT_EQ(till.marks.size(), 1u);
  EXPECT_EQ(till.marks[asked.job], (TokenCounts{5, 0, 1}));
  client->takes_more = false;
  tokens(*node, asked, 1, "b");
  tokens(*node, asked, 2, "c");  // waits here
  wait(std::chrono::milliseconds(500));
  EXPECT_EQ(till.marks[asked.job].output, 1) << "it is a row that is written";
  wait(std::chrono::milliseconds(500));
  EXPECT_EQ(till.marks[asked.job].output, 2);
}

// The next node has a longer context.
TEST_F(MoneyFleet, WhatIsHeldBoundsTheAnswerOnEveryNode) {
  protocol::Register small, large;
  small.models = large.models = {offer("m", 4)};
  small.models[0].context_length = 8;
  large.models[0].context_length = 100'000;
  const auto first = join("a", small);
  const auto client = ask_paid();
  const auto before = lease(*first);
  EXPECT_EQ(till.asked.at(0).max_output_tokens, 3);
  till.say_yes();
  EXPECT_EQ(first->all<protocol::Start>().at(0).max_tokens, 3u);
  tokens(*first, before, 0, "a");
  const auto second = join("b", large);
  lose(*first);
  const auto after = lease(*second);
  EXPECT_EQ(second->all<protocol::Start>().at(0).max_tokens, 3u);
  tokens(*second, after, 1, "b");
  tokens(*second, after, 2, "c");
  tokens(*second, after, 3, "d");  // a node that does not know the limit
  EXPECT_EQ(client->text(), "abc");
  ASSERT_EQ(client->finishes().size(), 1u);
  EXPECT_EQ(client->finishes()[0].reason, serving::ChatFinish::Reason::kLength);
  EXPECT_EQ(second->all<protocol::Cancel>().size(), 1u);
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_EQ(till.ended[0].tokens, (TokenCounts{5, 0, 3}));
}

// A node of the payer's own that bounds nothing would make the rest of the answer, on another node,
// cost next to nothing.
TEST_F(MoneyFleet, ALeaseWithoutABoundIsTheNodesFault) {
  protocol::Register mine;
  mine.models = {offer("m", 4)};
  mine.models[0].context_length = 0;
  const auto own = join("own", mine);
  till.own_node = own->id;
  const auto client = ask_paid();
  lease(*own);
  EXPECT_EQ(num_starts(*own), 0u);
  EXPECT_TRUE(till.asked.empty());
  EXPECT_EQ(own->all<protocol::Cancel>().size(), 1u);
}

// The second node has to compute what the first one had in its cache.
TEST_F(MoneyFleet, ALostStreamPaysForItsPromptAsIfNothingHadHappened) {
  const auto first = join("a");
  const auto client = ask_paid();
  const auto before = lease(*first);
  till.say_yes();
  protocol::Tokens frame;
  frame.ids = {0};
  frame.deltas = {{protocol::TextChannel::kContent, "a"}};
  frame.cached_tokens = 4;
  say(*first, before, frame);
  const auto second = join("b");
  lose(*first);
  const auto after = lease(*second);
  tokens(*second, after, 1, "b");
  finish(*second, after, 1);  // says 0
  ASSERT_EQ(till.ended.size(), 1u);
  EXPECT_EQ(till.ended[0].tokens, (TokenCounts{5, 4, 2}));
  EXPECT_EQ(client->finishes().at(0).usage.cached_tokens, 4);
  const auto gone = ask_paid();
  const auto asked = lease(*second, 1);
  till.say_yes(1);
  say(*second, asked, frame);
  dispatcher.cancel(gone->id);
  EXPECT_EQ(till.ended.at(1).tokens, (TokenCounts{5, 4, 1})) << "a client that leaves too";
}

TEST_F(MoneyFleet, OnesOwnNodeNeedsNoMoneyUntilAnotherTakesOver) {
  const auto own = join("own");
  till.own_node = own->id;
  const auto client = ask_paid();
  const auto before = lease(*own);
  EXPECT_EQ(num_starts(*own), 1u);
  EXPECT_TRUE(till.asked.empty());
  tokens(*own, before, 0, "one");
  const auto other = join("other");
  lose(*own);
  lease(*other);
  EXPECT_EQ(num_starts(*other), 0u);
  ASSERT_EQ(till.asked.size(), 1u);
  till.say_no();
  EXPECT_EQ(client->error().code, ErrorCode::kInsufficientFunds);
  EXPECT_EQ(client->text(), "one");
}

TEST_F(MoneyFleet, CountingTokensIsFreeAndNotRecorded) {
  const auto node = join("a");
  const auto client = ask_paid(false, 1, true);
  const auto asked = lease(*node);
  EXPECT_EQ(num_starts(*node), 1u);
  finish(*node, asked, 0);
  EXPECT_TRUE(till.asked.empty());
  EXPECT_TRUE(till.ended.empty());
}

TEST_F(MoneyFleet, ANodeIsAskedAboutJobsOfAnEarlierRunWhenItCanTell) {
  std::vector<std::string> reported;
  dispatcher.set_recall({[](const ProviderId&) {
                           return std::vector<protocol::Recall>{{{"aa"}}, {{"bb"}}};
                         },
                         [&](const ProviderId& node, const protocol::Recalled& report) {
                           reported.push_back(node.value + ":" + report.ends.at(0).job);
                         }});
  protocol::Register old_node, new_node;
  old_node.models = new_node.models = {offer("m", 1)};
  new_node.answers_recall = true;
  EXPECT_TRUE(join("old", old_node)->all<protocol::Recall>().empty());
  const auto node = join("new", new_node);
  ASSERT_EQ(node->all<protocol::Recall>().size(), 2u);
  EXPECT_EQ(node->all<protocol::Recall>()[1].jobs, std::vector<std::string>{"bb"});
  say(*node, {}, protocol::Recalled{{{.job = "aa"}}});
  EXPECT_EQ(reported, std::vector<std::string>{"id-new:aa"});
}

TEST_F(MoneyFleet, TheTillKnowsEveryNodeThatAJobGoesTo) {
  const auto first = join("a");
  const auto client = ask_paid();
  const auto asked = lease(*first);
  till.say_yes();
  EXPECT_EQ(till.asked.at(0).nodes, std::vector<ProviderId>{first->id});
  tokens(*first, asked, 0, "x");
  EXPECT_TRUE(till.moved.empty());
  const auto second = join("b");
  lose(*first);
  lease(*second);
  EXPECT_EQ(till.moved, std::vector<std::string>{"id-b"});
}

TEST_F(MoneyFleet, ALeaseBeyondReasonIsTheNodesFault) {
  for (const bool is_prompt : {true, false}) {
    const auto bad = join("bad");
    const auto client = ask_paid();
    protocol::Lease lease;
    (is_prompt ? lease.prompt_tokens : lease.granted_tokens) = 4'000'000'000;
    say(*bad, bad->asked.at(0), lease);
    EXPECT_TRUE(till.asked.empty());
    EXPECT_EQ(num_starts(*bad), 0u);
    EXPECT_EQ(bad->all<protocol::Cancel>().size(), 1u);
    dispatcher.cancel(client->id);
    lose(*bad);
  }
  expect_idle();
}

TEST_F(MoneyFleet, CountsThatANodeReportsKeepToWhatIsKnown) {
  const auto node = join("a");
  for (const std::int64_t cached : {std::numeric_limits<std::int64_t>::max(), std::int64_t{-7}}) {
    const auto client = ask_paid();
    const auto asked = lease(*node, till.asked.size());
    till.say_yes(till.asked.size() - 1);
    tokens(*node, asked, 0, "x");
    protocol::Finish done;
    done.reason = WireFinishReason::kStop;
    done.num_ids = 1;
    done.usage = {std::int64_t{1} << 40, -1, cached, std::int64_t{1} << 50};
    say(*node, asked, done);
    ASSERT_FALSE(till.ended.empty());
    EXPECT_EQ(till.ended.back().tokens, (TokenCounts{5, cached > 0 ? 5 : 0, 1}));
    const auto& usage = client->events.back().finish->usage;
    EXPECT_EQ(usage.prompt_tokens, 5);
    EXPECT_EQ(usage.completion_tokens, 1);
    EXPECT_EQ(usage.cached_tokens, cached > 0 ? 5 : 0);
    EXPECT_EQ(usage.reasoning_tokens, 1);
  }
}

TEST_F(MoneyFleet, AccountsThatDoNotAnswerEndTheRequestInTime) {
  const auto node = join("a");
  const auto client = ask_paid();
  lease(*node);
  for (int i = 0; i < 7; ++i) {
    wait(std::chrono::seconds(1));
    beat(*node);
  }
  EXPECT_TRUE(client->events.empty());
  wait(std::chrono::seconds(1));
  EXPECT_EQ(client->error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(client->error().message, ::testing::HasSubstr("accounts cannot be reached"));
  EXPECT_EQ(node->all<protocol::Cancel>().size(), 1u);
  till.say_yes();  // too late: it goes back
  ASSERT_FALSE(till.ended.empty());
  EXPECT_TRUE(till.ended.back().reservation.held());
  EXPECT_FALSE(till.ended.back().delivered);
}

}  // namespace
}  // namespace flotilla::coordinator
