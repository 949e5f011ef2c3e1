// Both sides of a worker in one process, with a scripted engine; real processes are in tests/e2e.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "flotilla/engine/engine_test_util.h"
#include "flotilla/engine/scripted_engine.h"
#include "flotilla/worker/remote_engine.h"
#include "flotilla/worker/worker_server.h"

namespace flotilla::worker {
namespace {

using engine::chat_job;
using engine::EventLog;
using engine::FinishReason;
using engine::start;
using engine::TextEngine;

class WorkerTest : public ::testing::Test {
 protected:
  ~WorkerTest() override {
    engine_.reset();
    if (worker_.joinable()) worker_.join();
    if (worker_end_ >= 0) ::close(worker_end_);
  }

  Status load(LoadEngine loader) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    worker_end_ = ::dup(ends[1]);
    hooks_ = {.load = std::move(loader), .on_device_lost = [this] { cut(); }};
    worker_ = std::thread([this, fd = ends[1]] { exit_ = run_worker(fd, hooks_); });
    RemoteOptions options;
    options.order.options.folder = "somewhere";
    options.order.options.first_id = 1000;
    options.progress = [this](std::uint64_t done, std::uint64_t total) {
      progress_ = {done, total};
    };
    options.on_lost = [this] { lost_.set_value(); };
    FLOTILLA_TRY(engine_, RemoteEngine::load({.fd = ends[0], .wait = [] { return "so"; }},
                                             std::move(options)));
    return ok_status();
  }
  void load_script(const std::string& script) {
    const Status loaded = load([script](const engine::ModelEngineOptions& options, std::uint64_t) {
      options.progress(1, 2);
      return engine::make_scripted_engine(script);
    });
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  }
  // As when the process dies.
  void cut() { ::shutdown(worker_end_, SHUT_RDWR); }
  bool lost_within_a_minute() {
    return lost_.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  }

  WorkerHooks hooks_;
  std::shared_ptr<RemoteEngine> engine_;
  std::thread worker_;
  std::atomic<int> exit_{-1};
  int worker_end_ = -1;
  std::pair<std::uint64_t, std::uint64_t> progress_{};
  std::promise<void> lost_;
};

std::string with_steps(std::string_view steps) {
  return R"({"rules": [{"steps": )" + std::string(steps) + "}]}";
}

TEST_F(WorkerTest, AnswersAsTheEngineInIt) {
  const std::string script = with_steps(R"([{"words": "Hello to the world."}])");
  const auto here = engine::make_scripted_engine(script).value();
  load_script(script);
  EXPECT_EQ(progress_, std::make_pair(std::uint64_t{1}, std::uint64_t{2}));
  EXPECT_EQ(packed(engine_->info()), packed(here->info()));
  EXPECT_TRUE(engine_->healthy());
  auto job = chat_job("hi");
  job.top_logprobs = 2;
  RequestId id;
  const auto log = start(*engine_, job, 0, &id);
  const auto expected = start(*here, job);
  ASSERT_TRUE(log->wait() && expected->wait());
  EXPECT_EQ(log->text(), "Hello to the world.");
  EXPECT_EQ(log->ids(), expected->ids());
  EXPECT_EQ(packed(*log->wait()), packed(*expected->wait()));
  EXPECT_GE(id.value, 1000u);
  for (const auto& event : log->events()) EXPECT_EQ(event.request, id);
  EXPECT_EQ(engine_->decode(log->ids()), here->decode(log->ids()));
  const auto prepared = engine_->prepare(job), prepared_here = here->prepare(job);
  EXPECT_EQ((*prepared)->prompt_digest, (*prepared_here)->prompt_digest);
  EXPECT_EQ((*prepared)->prompt_text, (*prepared_here)->prompt_text);
}

TEST_F(WorkerTest, ManyRequestsAtATimeAreNotMixed) {
  load_script(R"({"rules": [{"match": {"user": "one"}, "steps": [{"repeat": 50, "steps": ["1"]}]},
                            {"steps": [{"repeat": 50, "steps": ["2"]}]}]})");
  std::vector<std::shared_ptr<EventLog>> logs;
  for (int i = 0; i < 40; ++i) logs.push_back(start(*engine_, chat_job(i % 2 ? "one" : "two")));
  for (std::size_t i = 0; i < logs.size(); ++i) {
    ASSERT_TRUE(logs[i]->wait());
    EXPECT_EQ(logs[i]->text(), std::string(50, i % 2 ? '1' : '2'));
  }
}

TEST_F(WorkerTest, AFullReaderHoldsItsOwnAnswerUpAndNoOther) {
  load_script(R"({"rules": [
      {"match": {"user": "slow"}, "delay_ms": 1, "steps": [{"repeat": 300, "steps": ["x"]}]},
      {"steps": ["quick"]}]})");
  RequestId id;
  const auto slow = start(*engine_, chat_job("slow"), 1, &id);
  ASSERT_TRUE(slow->wait_events(1));
  const auto quick = start(*engine_, chat_job("else"));
  ASSERT_TRUE(quick->wait());
  EXPECT_EQ(quick->text(), "quick");
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // far longer than all its steps
  EXPECT_LT(slow->events().size(), 200u);
  // It goes on, event by event, and nothing is missing.
  while (slow->events().empty() || !slow->events().back().finish) {
    const std::size_t seen = slow->events().size();
    engine_->resume_output(id);
    ASSERT_TRUE(slow->wait_events(seen + 1));
  }
  EXPECT_EQ(slow->text(), std::string(300, 'x'));
}

TEST_F(WorkerTest, CancelEndsARequest) {
  load_script(with_steps(R"(["a", {"hang": true}])"));
  RequestId id;
  const auto log = start(*engine_, chat_job("x"), 0, &id);
  ASSERT_TRUE(log->wait_events(1));
  EXPECT_EQ(engine_->stats().num_running, 1u);
  engine_->cancel(id);
  engine_->cancel(id);
  EXPECT_EQ(log->wait()->reason, FinishReason::kCancelled);
}

// As when the process is stopped, or writes a core file: nobody else waits for it.
TEST_F(WorkerTest, AWorkerThatDoesNotAnswerHoldsNobodyUp) {
  std::promise<void> go_on;
  auto held = go_on.get_future().share();
  struct Deaf final : TextEngine {
    Deaf(std::shared_ptr<TextEngine> i, std::shared_future<void> h)
        : inner(std::move(i)), held(std::move(h)) {}
    const engine::EngineInfo& info() const override { return inner->info(); }
    Result<std::shared_ptr<const engine::PreparedJob>> prepare(engine::ChatJob job) const override {
      return inner->prepare(std::move(job));
    }
    Result<RequestId> submit(std::shared_ptr<const engine::PreparedJob> job,
                             engine::EventSink sink) override {
      return inner->submit(std::move(job), std::move(sink));
    }
    void cancel(RequestId id) override { inner->cancel(id); }
    void resume_output(RequestId id) override { inner->resume_output(id); }
    engine::EngineStats stats() const override {
      held.wait();  // and with it all that comes after the question
      return inner->stats();
    }
    bool healthy() const override { return inner->healthy(); }
    std::shared_ptr<TextEngine> inner;
    std::shared_future<void> held;
  };
  ASSERT_TRUE(load([&](const engine::ModelEngineOptions&, std::uint64_t) {
                return Result<std::shared_ptr<TextEngine>>(std::make_shared<Deaf>(
                    engine::make_scripted_engine(with_steps(R"(["a"])")).value(), held));
              }).ok());
  const auto prepared = engine_->prepare(chat_job("x"));
  ASSERT_TRUE(prepared.ok());
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::steady_clock::now() - begin; };
  EXPECT_TRUE(engine_->healthy());  // not yet known otherwise
  for (int i = 0; i < 1000; ++i) engine_->stats();
  EXPECT_LT(passed(), std::chrono::seconds(2));
  const auto submitted = engine_->submit(*prepared, EventLog::sink(EventLog::make()));
  ASSERT_FALSE(submitted.ok());
  EXPECT_EQ(submitted.error().code, ErrorCode::kUnavailable);
  EXPECT_LT(passed(), std::chrono::seconds(20));
  EXPECT_FALSE(engine_->healthy());
  EXPECT_GE(engine_->stats().current_step, std::chrono::seconds(2));
  go_on.set_value();
  for (int i = 0; i < 1000 && !engine_->healthy(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(engine_->healthy());
  const auto log = start(*engine_, chat_job("y"));
  ASSERT_TRUE(log->wait());
  EXPECT_EQ(log->text(), "a");
}

TEST_F(WorkerTest, AnErrorOfLoadingArrivesInItsOwnWords) {
  const Status refused = load([](const engine::ModelEngineOptions& options, std::uint64_t) {
    return Result<std::shared_ptr<TextEngine>>(
        Error{ErrorCode::kResourceExhausted, options.folder + " needs more", "model"});
  });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(to_string(refused.error()), "resource_exhausted: somewhere needs more");
  worker_.join();
  EXPECT_EQ(exit_, 1);
}

TEST_F(WorkerTest, AnErrorOfAPromptArrivesInItsOwnWords) {
  const std::string script = R"({"context_length": 2, "rules": [{"steps": ["a"]}]})";
  const auto here = engine::make_scripted_engine(script).value();
  load_script(script);
  const auto job = chat_job("more words than there is room for");
  const auto error = engine_->prepare(job).error();
  EXPECT_EQ(error.code, ErrorCode::kContextLength);
  EXPECT_EQ(packed(error), packed(here->prepare(job).error()));
}

// As a node does with an answer that another one began.
TEST_F(WorkerTest, ACopyOfAPreparedJobRunsAsItSays) {
  load_script(with_steps(R"([{"words": "one two three four five six"}])"));
  const auto whole = start(*engine_, chat_job("x"));
  ASSERT_TRUE(whole->wait());
  const auto ids = whole->ids();
  ASSERT_GT(ids.size(), 4u);
  const auto prepared = engine_->prepare(chat_job("x"));
  ASSERT_TRUE(prepared.ok());
  auto copy = std::make_shared<engine::PreparedJob>(**prepared);
  copy->job.resume_ids = {ids.begin(), ids.begin() + 2};
  copy->job.max_tokens = 3;
  const auto log = EventLog::make();
  ASSERT_TRUE(engine_->submit(copy, EventLog::sink(log)).ok());
  ASSERT_TRUE(log->wait());
  EXPECT_EQ(log->wait()->reason, FinishReason::kLength);
  EXPECT_EQ(log->ids(), std::vector<TokenId>(ids.begin(), ids.begin() + 3));
}

TEST_F(WorkerTest, AJobOfAnotherWorkerIsRefused) {
  load_script(with_steps(R"(["a"])"));
  const auto prepared = engine_->prepare(chat_job("x"));
  ASSERT_TRUE(prepared.ok());
  engine_.reset();
  worker_.join();
  ::close(worker_end_);
  load_script(with_steps(R"(["b"])"));
  const auto submitted = engine_->submit(*prepared, EventLog::sink(EventLog::make()));
  ASSERT_FALSE(submitted.ok());
  EXPECT_EQ(submitted.error().code, ErrorCode::kUnavailable);
}

TEST_F(WorkerTest, AnEndEndsItsRequestsOnceWithAnErrorAndIsTold) {
  load_script(with_steps(R"(["a", {"hang": true}])"));
  const auto one = start(*engine_, chat_job("x")), two = start(*engine_, chat_job("y"));
  ASSERT_TRUE(one->wait_events(1) && two->wait_events(1));
  cut();
  for (const auto& log : {one, two}) {
    ASSERT_TRUE(log->wait());
    EXPECT_EQ(log->wait()->reason, FinishReason::kError);
    EXPECT_EQ(log->wait()->error->code, ErrorCode::kModelFault);
  }
  EXPECT_TRUE(lost_within_a_minute());
  EXPECT_FALSE(engine_->healthy());
  EXPECT_EQ(engine_->prepare(chat_job("z")).error().code, ErrorCode::kUnavailable);
  std::size_t ends = 0;
  for (const auto& event : one->events()) ends += event.finish.has_value();
  EXPECT_EQ(ends, 1u);
}

// The engine in the worker says that its device is gone; nobody waits for more of it.
TEST_F(WorkerTest, ALostDeviceIsNamed) {
  std::function<void()> lose;
  ASSERT_TRUE(load([&lose](const engine::ModelEngineOptions& options, std::uint64_t) {
                lose = options.on_device_lost;
                return engine::make_scripted_engine(with_steps(R"(["a", {"hang": true}])"));
              }).ok());
  const auto log = start(*engine_, chat_job("x"));
  ASSERT_TRUE(log->wait_events(1));
  lose();
  ASSERT_TRUE(log->wait());
  EXPECT_NE(log->wait()->error->message.find("device"), std::string::npos);
  EXPECT_TRUE(lost_within_a_minute());
}

TEST_F(WorkerTest, AProcessThatEndsWhileItLoadsIsAnError) {
  const Status ended = load([this](const engine::ModelEngineOptions&, std::uint64_t) {
    cut();
    return Result<std::shared_ptr<TextEngine>>(Error{ErrorCode::kInternal, "never heard"});
  });
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(ended.error().message.find("somewhere"), std::string::npos);
}

}  // namespace
}  // namespace flotilla::worker
