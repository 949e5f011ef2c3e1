#include "flotilla/provider/job_runner.h"

#include <gtest/gtest.h>

#include <future>

#include "flotilla/protocol/identity.h"
#include "flotilla/provider/chat_job.h"
#include "flotilla/provider/test_fakes.h"

namespace flotilla::provider {
namespace {

using namespace std::chrono_literals;
using protocol::RefuseReason;
using protocol::WireFinishReason;

constexpr std::string_view kScript = R"({"model": "demo", "max_concurrent": 2, "rules": [
  {"match": {"user": "hang"}, "steps": ["begun", {"hang": true}]},
  {"match": {"user": "slow"}, "steps": [{"repeat": 2000, "steps": [{"raw": "x", "delay_ms": 1}]}]},
  {"match": {"user": "endless"}, "steps": ["y"], "loop": true},
  {"match": {"user": "fail"}, "steps": ["half ", {"fail": {"code": "model_fault", "message": "NaN in layer 3"}}]},
  {"match": {"user": "refuse"}, "refuse": {"code": "invalid_argument", "message": "roles must alternate"}, "steps": []},
  {"match": {"user": "resume"}, "steps": ["<|channel>", "thought\nI see.", "<channel|>", "one ", "two ", "three ", "four"]},
  {"match": {"user": "call"}, "steps": ["Let me look. ", "<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>}<tool_call|>"]},
  {"steps": ["hel", "lo"]}]})";

class JobRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(models_.add_engine(scripted(kScript)).ok());
    runner_ = std::make_shared<JobRunner>(
        strand_, models_, *workers_, clock_, options_,
        [this](protocol::ProviderMessage message, const AttemptKey& key) {
          inbox_.add(key.job, key.attempt, std::move(message));
        },
        [this] { ++num_load_changes_; });
  }
  void TearDown() override {
    on_strand([&](JobRunner& r) { r.drop_all(); });
    workers_.reset();
    on_strand([&](JobRunner&) { runner_.reset(); });
  }
  void on_strand(const std::function<void(JobRunner&)>& task) {
    std::promise<void> done;
    strand_.post([&] {
      task(*runner_);
      done.set_value();
    });
    done.get_future().wait();
  }
  static protocol::Prepare prepare_of(std::string_view user, std::string_view more = "") {
    const std::string body = R"({"model": "demo", "messages": [{"role": "user", "content": ")" +
                             std::string(user) + "\"}]" + std::string(more) + "}";
    return {.model = "demo",
            .request = "r",
            .tenant = "t",
            .choice = 0,
            .job = api::to_job_json(chat_request(body))};
  }
  void prepare(const AttemptKey& key, std::string_view user, std::string_view more = "") {
    on_strand([&](JobRunner& r) { r.on_prepare(key, prepare_of(user, more)); });
  }
  void start(const AttemptKey& key, protocol::Start message = {}) {
    on_strand([&](JobRunner& r) { r.on_start(key, message); });
  }
  void cancel(const AttemptKey& key) {
    on_strand([&](JobRunner& r) { r.on_cancel(key); });
  }
  std::size_t num_jobs() {
    std::size_t n = 0;
    on_strand([&](JobRunner& r) { n = r.num_jobs(); });
    return n;
  }
  static AttemptKey new_key(std::uint32_t attempt = 1) {
    return {protocol::random_job_id(), attempt};
  }
  // Prepare, Lease, Start.
  AttemptKey run(std::string_view user, std::string_view more = "", protocol::Start message = {}) {
    const AttemptKey key = new_key();
    prepare(key, user, more);
    EXPECT_TRUE(inbox_.take<protocol::Lease>(key.job).has_value());
    start(key, std::move(message));
    return key;
  }

  net::IoRuntime io_{2};
  SystemClock clock_;
  const net::Strand strand_{io_};
  ModelManager models_{nullptr, clock_};
  std::unique_ptr<WorkerPool> workers_ = std::make_unique<WorkerPool>(2, 64);
  JobOptions options_{.lease_time = 300ms, .max_waiting = 2};
  Inbox inbox_;
  std::atomic<int> num_load_changes_{0};
  std::shared_ptr<JobRunner> runner_;
};

// The reservation of a job bounds it, also where the context is longer.
TEST_F(JobRunnerTest, TheLimitOfStartBoundsTheAnswer) {
  for (const std::string_view more : {"", R"(, "max_tokens": 1000)"}) {
    const AttemptKey key = run("endless", more, {.max_tokens = 7});
    const auto end = inbox_.take<protocol::Finish>(key.job);
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->reason, WireFinishReason::kLength);
    EXPECT_EQ(end->num_ids, 7u);
  }
  const AttemptKey less = run("endless", R"(, "max_tokens": 3)", {.max_tokens = 7});
  EXPECT_EQ(inbox_.take<protocol::Finish>(less.job)->num_ids, 3u);
}

// Remembers the jobs that it is given.
class RecordingEngine final : public engine::TextEngine {
 public:
  explicit RecordingEngine(std::shared_ptr<engine::TextEngine> engine)
      : engine_(std::move(engine)) {}
  const engine::EngineInfo& info() const override { return engine_->info(); }
  Result<std::shared_ptr<const engine::PreparedJob>> prepare(engine::ChatJob job) const override {
    std::lock_guard lock(mutex_);
    jobs_.push_back(job);
    return engine_->prepare(std::move(job));
  }
  Result<RequestId> submit(std::shared_ptr<const engine::PreparedJob> job,
                           engine::EventSink sink) override {
    return engine_->submit(std::move(job), std::move(sink));
  }
  void cancel(RequestId request) override { engine_->cancel(request); }
  void resume_output(RequestId request) override { engine_->resume_output(request); }
  engine::EngineStats stats() const override { return engine_->stats(); }
  bool healthy() const override { return engine_->healthy(); }
  std::vector<engine::ChatJob> jobs() const {
    std::lock_guard lock(mutex_);
    return jobs_;
  }

 private:
  const std::shared_ptr<engine::TextEngine> engine_;
  mutable std::mutex mutex_;
  mutable std::vector<engine::ChatJob> jobs_;  // guarded by mutex_
};

TEST_F(JobRunnerTest, TheDeadlineOfTheFirstTokenReachesTheEngine) {
  const auto engine = std::make_shared<RecordingEngine>(
      scripted(R"({"model": "recorded", "rules": [{"steps": ["x"]}]})"));
  ASSERT_TRUE(models_.add_engine(engine).ok());
  for (const std::uint32_t within : {0u, 4'321u}) {
    protocol::Prepare message = prepare_of("hi");
    message.model = "recorded";
    message.first_token_within_ms = within;
    const AttemptKey key = new_key();
    on_strand([&](JobRunner& r) { r.on_prepare(key, message); });
    ASSERT_TRUE(inbox_.take<protocol::Lease>(key.job).has_value());
    EXPECT_EQ(engine->jobs().back().first_token_within, std::chrono::milliseconds(within));
    cancel(key);
  }
}

TEST_F(JobRunnerTest, LeaseThenStartGivesTokensAndOneFinish) {
  const AttemptKey key = new_key();
  prepare(key, "hi", R"(, "logprobs": true, "max_tokens": 5)");
  const auto lease = inbox_.take<protocol::Lease>(key.job);
  ASSERT_TRUE(lease);
  EXPECT_GT(lease->prompt_tokens, 0u);
  EXPECT_EQ(lease->prompt_digest.size(), 64u);
  EXPECT_EQ(lease->granted_tokens, 5u);
  EXPECT_EQ(lease->valid_ms, 300u);
  EXPECT_EQ(inbox_.count<protocol::Tokens>(), 0u) << "nothing runs before Start";
  start(key);
  start(key);  // a repeated frame
  const auto finish = inbox_.take<protocol::Finish>(key.job);
  ASSERT_TRUE(finish);
  const auto output = inbox_.take_output(key.job);
  EXPECT_EQ(output.content, "hello");
  EXPECT_EQ(output.first_index, 0u);
  EXPECT_EQ(output.num_logprobs, output.ids.size());
  EXPECT_EQ(finish->reason, WireFinishReason::kStop);
  EXPECT_EQ(finish->num_ids, output.ids.size());
  EXPECT_EQ(finish->usage.completion_tokens, static_cast<std::int64_t>(output.ids.size()));
  EXPECT_EQ(num_jobs(), 0u);
  prepare(key, "hi");
  start(key);
  EXPECT_FALSE(inbox_.take<protocol::Lease>(key.job, 50ms)) << "an attempt never runs twice";
  EXPECT_GE(num_load_changes_, 2);
}

TEST_F(JobRunnerTest, AJobThatOnlyCountsFinishesAtItsStart) {
  auto prepare = prepare_of("hang");
  prepare.job.as_object()["count_only"] = true;
  const AttemptKey key = new_key();
  on_strand([&](JobRunner& r) { r.on_prepare(key, prepare); });
  const auto lease = inbox_.take<protocol::Lease>(key.job);
  ASSERT_TRUE(lease);
  start(key);
  const auto finish = inbox_.take<protocol::Finish>(key.job);
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->reason, WireFinishReason::kLength);
  EXPECT_EQ(finish->num_ids, 0u);
  EXPECT_EQ(finish->usage.prompt_tokens, static_cast<std::int64_t>(lease->prompt_tokens));
  EXPECT_EQ(finish->usage.completion_tokens, 0);
  EXPECT_EQ(inbox_.count<protocol::Tokens>(), 0u);
  EXPECT_EQ(num_jobs(), 0u);
}

TEST_F(JobRunnerTest, CallsCarryIdsAndTheFinishSaysToolCalls) {
  const std::string_view tools =
      R"(, "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}])";
  const AttemptKey key = run("call", tools);
  const auto finish = inbox_.take<protocol::Finish>(key.job);
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->reason, WireFinishReason::kToolCalls);
  const auto output = inbox_.take_output(key.job);
  EXPECT_EQ(output.call_name, "weather");
  EXPECT_EQ(output.call_id, protocol::tool_call_id(key.job, 0));
  EXPECT_EQ(json::parse(output.arguments)->at("city").as_string(), "Oslo");
}

TEST_F(JobRunnerTest, RefusalsSayWhoCanHelp) {
  const auto refused = [&](protocol::Prepare message) {
    const AttemptKey key = new_key();
    on_strand([&](JobRunner& r) { r.on_prepare(key, std::move(message)); });
    const auto refuse = inbox_.take<protocol::Refuse>(key.job);
    EXPECT_TRUE(refuse);
    return refuse.value_or(protocol::Refuse{});
  };
  const auto by_template = refused(prepare_of("refuse"));
  EXPECT_EQ(by_template.reason, RefuseReason::kInvalidRequest);
  EXPECT_EQ(by_template.error.message, "roles must alternate");
  std::string longer;
  for (int i = 0; i < 5000; ++i) longer += "word ";
  const auto too_long = refused(prepare_of(longer));
  EXPECT_EQ(too_long.reason, RefuseReason::kInvalidRequest);
  EXPECT_EQ(too_long.error.code, ErrorCode::kContextLength);
  protocol::Prepare other = prepare_of("hi");
  other.model = "other";
  EXPECT_EQ(refused(other).reason, RefuseReason::kNotLoaded);
  protocol::Prepare broken = prepare_of("hi");
  broken.job = "not a job";
  EXPECT_EQ(refused(broken).reason, RefuseReason::kInvalidRequest);
  on_strand([](JobRunner& r) { r.set_draining(true); });
  EXPECT_EQ(refused(prepare_of("hi")).reason, RefuseReason::kDraining);
  EXPECT_EQ(num_jobs(), 0u);
}

TEST_F(JobRunnerTest, JobsBeyondTheLimitAreRefusedAsBusy) {
  std::vector<AttemptKey> keys;
  for (int i = 0; i < 4; ++i) keys.push_back(run("hang"));  // 2 at once and 2 waiting
  const AttemptKey fifth = new_key();
  prepare(fifth, "hi");
  const auto refuse = inbox_.take<protocol::Refuse>(fifth.job);
  ASSERT_TRUE(refuse);
  EXPECT_EQ(refuse->reason, RefuseReason::kBusy);
  EXPECT_GT(refuse->retry_after_ms, 0u);
  for (const AttemptKey& key : keys) cancel(key);
  for (const AttemptKey& key : keys) EXPECT_TRUE(inbox_.take<protocol::CancelAck>(key.job));
  const AttemptKey again = run("hi");
  EXPECT_TRUE(inbox_.take<protocol::Finish>(again.job));
}

TEST_F(JobRunnerTest, ALeaseThatIsNotStartedEnds) {
  const AttemptKey key = new_key();
  prepare(key, "hi");
  ASSERT_TRUE(inbox_.take<protocol::Lease>(key.job));
  EXPECT_EQ(num_jobs(), 1u);
  EXPECT_TRUE(eventually([&] { return num_jobs() == 0; }));
  start(key);
  const auto refuse = inbox_.take<protocol::Refuse>(key.job);
  ASSERT_TRUE(refuse);
  EXPECT_EQ(refuse->error.code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(inbox_.count<protocol::Tokens>(), 0u);
}

TEST_F(JobRunnerTest, CancelIsAcknowledgedOnceForEachAndNothingFollows) {
  const AttemptKey key = run("slow");
  ASSERT_TRUE(inbox_.take<protocol::Tokens>(key.job));
  cancel(key);
  cancel(key);
  const auto first = inbox_.take<protocol::CancelAck>(key.job),
             second = inbox_.take<protocol::CancelAck>(key.job);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(first->was_running);
  EXPECT_GT(first->usage.completion_tokens, 0);
  EXPECT_LT(first->usage.completion_tokens, 2000);
  inbox_.take_output(key.job);
  EXPECT_FALSE(inbox_.take<protocol::Tokens>(key.job, 30ms));
  EXPECT_FALSE(inbox_.take<protocol::Finish>(key.job, 0ms));
  cancel(key);  // long after
  const auto late = inbox_.take<protocol::CancelAck>(key.job);
  ASSERT_TRUE(late);
  EXPECT_FALSE(late->was_running);
  EXPECT_TRUE(eventually([&] { return (*models_.find("demo"))->stats().num_running == 0; }));
}

TEST_F(JobRunnerTest, CancelEndsALeaseAndIsRememberedWhenItComesFirst) {
  const AttemptKey leased = new_key(), early = new_key();
  prepare(leased, "hi");
  ASSERT_TRUE(inbox_.take<protocol::Lease>(leased.job));
  cancel(leased);
  EXPECT_FALSE(inbox_.take<protocol::CancelAck>(leased.job)->was_running);
  start(leased);
  cancel(early);
  EXPECT_TRUE(inbox_.take<protocol::CancelAck>(early.job));
  prepare(early, "hi");
  EXPECT_FALSE(inbox_.take<protocol::Lease>(early.job, 50ms));
  EXPECT_FALSE(inbox_.take<protocol::Refuse>(leased.job, 0ms))
      << "no frame follows the acknowledgement";
  EXPECT_EQ(num_jobs(), 0u);
  // Another attempt of the same job is another matter.
  const AttemptKey next{early.job, 2};
  prepare(next, "hi");
  EXPECT_TRUE(inbox_.take<protocol::Lease>(next.job));
}

TEST_F(JobRunnerTest, AFaultEndsItsOwnJobOnly) {
  const AttemptKey other = run("slow");
  const AttemptKey key = run("fail");
  const auto finish = inbox_.take<protocol::Finish>(key.job);
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->reason, WireFinishReason::kError);
  ASSERT_TRUE(finish->error);
  EXPECT_EQ(finish->error->code, ErrorCode::kModelFault);
  EXPECT_EQ(inbox_.take_output(key.job).content, "half ");
  EXPECT_TRUE(inbox_.take<protocol::Tokens>(other.job));
}

TEST_F(JobRunnerTest, ASlowReaderPausesItsOwnJobOnly) {
  const AttemptKey key = run("endless"), other = run("endless");
  ASSERT_TRUE(inbox_.take<protocol::Tokens>(key.job));
  on_strand([&](JobRunner& r) { r.on_flow(key, true); });
  // What was under way still arrives, then nothing.
  ASSERT_TRUE(eventually([&] {
    inbox_.take_output(key.job);
    return !inbox_.take<protocol::Tokens>(key.job, 50ms).has_value();
  }));
  EXPECT_TRUE(inbox_.take<protocol::Tokens>(other.job));
  on_strand([&](JobRunner& r) { r.on_flow(key, false); });
  EXPECT_TRUE(inbox_.take<protocol::Tokens>(key.job));
  on_strand([&](JobRunner& r) { r.on_flow(key, true); });
  cancel(key);
  EXPECT_TRUE(inbox_.take<protocol::CancelAck>(key.job)) << "a paused job can be cancelled";
}

TEST_F(JobRunnerTest, AFullLinkPausesEveryJobUntilItDrains) {
  const AttemptKey key = run("endless");
  ASSERT_TRUE(inbox_.take<protocol::Tokens>(key.job));
  on_strand([](JobRunner& r) { r.set_link_full(true); });
  ASSERT_TRUE(eventually([&] {
    inbox_.take_output(key.job);
    return !inbox_.take<protocol::Tokens>(key.job, 50ms).has_value();
  }));
  const AttemptKey later = run("endless");  // at most the event that finds the link full
  ASSERT_TRUE(eventually([&] {
    inbox_.take_output(later.job);
    return !inbox_.take<protocol::Tokens>(later.job, 50ms).has_value();
  }));
  on_strand([](JobRunner& r) { r.set_link_full(false); });
  EXPECT_TRUE(inbox_.take<protocol::Tokens>(key.job));
  EXPECT_TRUE(inbox_.take<protocol::Tokens>(later.job));
}

// The seam of a later resume: cut a finished answer anywhere, continue it, and the parts join to
// the whole.
TEST_F(JobRunnerTest, AResumedAttemptContinuesWhereTheDeliveredOneEnded) {
  const AttemptKey whole_key = run("resume");
  ASSERT_TRUE(inbox_.take<protocol::Finish>(whole_key.job));
  const auto whole = inbox_.take_output(whole_key.job);
  ASSERT_EQ(whole.content, "one two three four");
  ASSERT_EQ(whole.reasoning, "I see.");
  for (std::size_t cut = 1; cut < whole.ids.size(); ++cut) {
    protocol::Start message;
    message.resume_ids.assign(whole.ids.begin(),
                              whole.ids.begin() + static_cast<std::ptrdiff_t>(cut));
    message.emitted.content = std::min<std::uint64_t>(cut, 5);  // as much as had reached the client
    message.emitted.reasoning = cut >= 3 ? 6 : 0;
    const AttemptKey key = run("resume", "", message);
    const auto finish = inbox_.take<protocol::Finish>(key.job);
    ASSERT_TRUE(finish);
    EXPECT_EQ(finish->reason, WireFinishReason::kStop) << cut;
    const auto rest = inbox_.take_output(key.job);
    EXPECT_EQ(whole.content.substr(0, message.emitted.content) + rest.content, whole.content)
        << cut;
    EXPECT_EQ(whole.reasoning.substr(0, message.emitted.reasoning) + rest.reasoning,
              whole.reasoning)
        << cut;
    EXPECT_EQ(rest.first_index, cut);
    std::vector<TokenId> joined = message.resume_ids;
    joined.insert(joined.end(), rest.ids.begin(), rest.ids.end());
    EXPECT_EQ(joined, whole.ids) << cut;
    EXPECT_EQ(finish->num_ids, rest.ids.size());
  }
}

TEST_F(JobRunnerTest, AResumeOfAnotherPromptIsRefused) {
  const AttemptKey key = new_key();
  prepare(key, "resume");
  ASSERT_TRUE(inbox_.take<protocol::Lease>(key.job));
  start(key, {.resume_ids = {1}, .prompt_digest = std::string(64, '0')});
  const auto refuse = inbox_.take<protocol::Refuse>(key.job);
  ASSERT_TRUE(refuse);
  EXPECT_EQ(refuse->reason, RefuseReason::kPromptMismatch);
}

TEST_F(JobRunnerTest, DropAllEndsTheWorkWithoutAFrame) {
  const AttemptKey key = run("endless"), leased = new_key();
  prepare(leased, "hi");
  ASSERT_TRUE(inbox_.take<protocol::Tokens>(key.job));
  on_strand([](JobRunner& r) { r.drop_all(); });
  inbox_.take_output(key.job);
  EXPECT_TRUE(eventually([&] { return (*models_.find("demo"))->stats().num_running == 0; }));
  EXPECT_EQ(inbox_.count<protocol::Finish>() + inbox_.count<protocol::Tokens>() +
                inbox_.count<protocol::CancelAck>(),
            0u);
}

TEST_F(JobRunnerTest, ReportsItsLoad) {
  const AttemptKey key = run("slow");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(inbox_.take<protocol::Tokens>(key.job));
  std::vector<protocol::SlotLoad> loads;
  on_strand([&](JobRunner& r) { loads = r.loads(); });
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads[0].model, "demo");
  EXPECT_EQ(loads[0].num_running, 1u);
  EXPECT_GT(loads[0].decode_tokens_per_s, 0);
  EXPECT_TRUE(loads[0].healthy);
}

// Cancels at random moments of every phase: each gets its acknowledgements, and nothing is left
// behind.
TEST_F(JobRunnerTest, RandomCancelsLeaveNothingBehind) {
  for (int i = 0; i < 100; ++i) {
    const AttemptKey key = new_key();
    prepare(key, i % 2 ? "slow" : "hi");
    if (i % 3) {
      inbox_.take<protocol::Lease>(key.job, 20ms);
      start(key);
      if (i % 5 == 0) std::this_thread::sleep_for(3ms);
    }
    cancel(key);
    ASSERT_TRUE(inbox_.take<protocol::CancelAck>(key.job)) << i;
  }
  EXPECT_TRUE(eventually([&] { return num_jobs() == 0; }));
  EXPECT_TRUE(eventually([&] { return (*models_.find("demo"))->stats().num_running == 0; }));
}

// Does nothing but say how its step goes.
struct SteppingEngine final : engine::TextEngine {
  explicit SteppingEngine(const std::string& model) { info_.model = model; }
  const engine::EngineInfo& info() const override { return info_; }
  Result<std::shared_ptr<const engine::PreparedJob>> prepare(engine::ChatJob) const override {
    return Error{ErrorCode::kUnsupported, "no"};
  }
  Result<RequestId> submit(std::shared_ptr<const engine::PreparedJob>, engine::EventSink) override {
    return Error{ErrorCode::kUnsupported, "no"};
  }
  void cancel(RequestId) override {}
  void resume_output(RequestId) override {}
  engine::EngineStats stats() const override { return stats_; }
  bool healthy() const override { return true; }
  engine::EngineInfo info_;
  engine::EngineStats stats_;
};

// A coordinator that was restarted asks; the connection that the jobs came by is gone by then.
TEST_F(JobRunnerTest, RecallTellsHowFarJobsWent) {
  const AttemptKey finished = run("hello");
  const auto finish = inbox_.take<protocol::Finish>(finished.job);
  ASSERT_TRUE(finish.has_value());
  const AttemptKey cut = run("hang");
  ASSERT_TRUE(inbox_.take<protocol::Tokens>(cut.job).has_value());
  const AttemptKey leased = new_key();
  prepare(leased, "hello");
  ASSERT_TRUE(inbox_.take<protocol::Lease>(leased.job).has_value());
  on_strand([&](JobRunner& r) { r.drop_all(); });
  on_strand([&](JobRunner& r) {
    r.on_recall({{protocol::to_hex(cut.job), protocol::to_hex(finished.job),
                  protocol::to_hex(leased.job), protocol::to_hex(protocol::random_job_id())}});
  });
  const auto recalled = inbox_.take<protocol::Recalled>();
  ASSERT_TRUE(recalled.has_value());
  ASSERT_EQ(recalled->ends.size(), 2u);  // what was never started has no end
  EXPECT_EQ(recalled->ends[0].job, protocol::to_hex(cut.job));
  EXPECT_FALSE(recalled->ends[0].finished);
  EXPECT_EQ(recalled->ends[0].end_token, 1u);
  EXPECT_TRUE(recalled->ends[1].finished);
  EXPECT_EQ(recalled->ends[1].attempt, 1u);
  EXPECT_EQ(recalled->ends[1].first_token, 0u);
  EXPECT_EQ(recalled->ends[1].end_token, finish->num_ids);
  EXPECT_EQ(recalled->ends[1].prompt_tokens, finish->usage.prompt_tokens);
}

TEST_F(JobRunnerTest, RecallCountsFromWhereAnAnswerWasContinued) {
  const AttemptKey key = new_key(2);
  prepare(key, "resume");
  ASSERT_TRUE(inbox_.take<protocol::Lease>(key.job).has_value());
  const AttemptKey first = run("resume");
  ASSERT_TRUE(inbox_.take<protocol::Finish>(first.job).has_value());
  const auto ids = inbox_.take_output(first.job).ids;
  protocol::Start resumed;
  resumed.resume_ids.assign(ids.begin(), ids.begin() + 4);
  start(key, resumed);
  ASSERT_TRUE(inbox_.take<protocol::Finish>(key.job).has_value());
  on_strand([&](JobRunner& r) { r.on_recall({{protocol::to_hex(key.job)}}); });
  const auto recalled = inbox_.take<protocol::Recalled>();
  ASSERT_TRUE(recalled && recalled->ends.size() == 1);
  EXPECT_EQ(recalled->ends[0].attempt, 2u);
  EXPECT_EQ(recalled->ends[0].first_token, 4u);
  EXPECT_EQ(recalled->ends[0].end_token, ids.size());
}

TEST_F(JobRunnerTest, AStepFarLongerThanAnyBeforeItIsStuck) {
  const auto slow = std::make_shared<SteppingEngine>("slow");
  ASSERT_TRUE(models_.add_engine(slow).ok());
  const auto stuck = [&](std::chrono::milliseconds current, std::chrono::milliseconds longest) {
    slow->stats_.current_step = current;
    slow->stats_.longest_step = longest;
    std::vector<std::string> names;
    on_strand([&](JobRunner& r) { names = r.stuck_models(); });
    return names == std::vector<std::string>{"slow"};
  };
  EXPECT_FALSE(stuck(0ms, 100ms));
  EXPECT_FALSE(stuck(30s, 100ms));
  EXPECT_TRUE(stuck(31s, 100ms));
  EXPECT_FALSE(stuck(100s, 20s));
  EXPECT_TRUE(stuck(101s, 20s));
  EXPECT_FALSE(stuck(120s, 0ms));  // the first step: who knows how slow the machine is
  EXPECT_TRUE(stuck(121s, 0ms));
}

}  // namespace
}  // namespace flotilla::provider
