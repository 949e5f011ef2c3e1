#include "flotilla/engine/engine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

#include "flotilla/engine/engine_test_util.h"
#include "flotilla/engine/fake_runner.h"

namespace flotilla::engine {
namespace {

using std::chrono::milliseconds;

struct Bench {
  explicit Bench(EngineOptions options = fake_options(), const FailurePolicy& policy = {}) {
    auto owned = std::make_unique<FakeRunner>();
    owned->before_step = [this](std::span<const ScheduledRow>) {
      ++steps;
      if (slow) std::this_thread::sleep_for(milliseconds(1));
      while (held) std::this_thread::sleep_for(milliseconds(1));
      if (broken) throw std::runtime_error("device lost");
    };
    engine = std::make_unique<Engine>(options, layout, std::move(owned),
                                      std::make_shared<FakeOutputs>(), policy);
  }
  std::shared_ptr<EventLog> submit(std::shared_ptr<const PreparedJob> job,
                                   RequestId* id = nullptr) {
    auto log = EventLog::make();
    const auto submitted = engine->submit(std::move(job), EventLog::sink(log));
    if (!submitted.ok()) {
      TokenEvent event;
      event.finish = Finish{.reason = FinishReason::kError, .error = submitted.error()};
      EventLog::sink(log)(std::move(event));
    } else if (id != nullptr) {
      *id = *submitted;
    }
    return log;
  }
  bool settles() {
    const EngineStats stats = settled_stats(*engine);
    return stats.num_running == 0 && stats.num_waiting == 0 && stats.kv_bytes_used == 0;
  }

  state::StateLayout layout = fake_layout();
  std::atomic<int> steps{0};
  std::atomic<bool> slow{false};
  std::atomic<bool> broken{false};
  std::atomic<bool> held{false};
  std::unique_ptr<Engine> engine;
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST(Engine, ServesRequestsFromManyThreads) {
  Bench bench;
  std::vector<std::thread> threads;
  std::atomic<int> complete{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 8; ++i) {
        const auto log = bench.submit(fake_job(t * 100 + i, 20, 20));
        const auto finish = log->wait();
        if (finish && finish->reason == FinishReason::kLength && log->ids().size() == 20) {
          ++complete;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(complete, 32);
  EXPECT_TRUE(bench.settles());
}

TEST(Engine, TellsHowLongItsStepRuns) {
  Bench bench;
  EXPECT_EQ(bench.engine->stats().current_step.count(), 0);
  bench.held = true;
  const auto log = bench.submit(fake_job(1, 20, 5));
  for (int i = 0; i < 2'000 && bench.engine->stats().current_step < milliseconds(30); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(bench.engine->stats().current_step, milliseconds(30));
  bench.held = false;
  ASSERT_TRUE(log->wait());
  EXPECT_TRUE(bench.settles());
  EXPECT_EQ(bench.engine->stats().current_step.count(), 0);
  EXPECT_GE(bench.engine->stats().longest_step, milliseconds(30));
}

TEST(Engine, UsesNoProcessorWhenIdle) {
  Bench bench;
  bench.submit(fake_job(1, 5, 5))->wait();
  ASSERT_TRUE(bench.settles());
  const double before = cpu_seconds();
  const int steps = bench.steps;
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LT(cpu_seconds() - before, 0.05);
  EXPECT_EQ(bench.steps, steps);
}

TEST(Engine, RefusesAtItsQueueLimit) {
  EngineOptions options = fake_options();
  options.scheduler.max_sequences = 1;
  options.max_waiting = 2;
  Bench bench(options);
  bench.slow = true;
  std::vector<std::shared_ptr<EventLog>> logs;
  for (std::uint64_t i = 0; i < 10; ++i) logs.push_back(bench.submit(fake_job(i, 20, 30)));
  int refused = 0;
  for (const auto& log : logs) {
    const auto finish = log->wait();
    ASSERT_TRUE(finish.has_value());
    if (finish->error && finish->error->code == ErrorCode::kResourceExhausted) ++refused;
  }
  EXPECT_EQ(refused, 7);
  EXPECT_EQ(bench.submit(fake_job(1, 5, 5))->wait()->reason, FinishReason::kLength);
}

TEST(Engine, CancelledRequestsReturnAllTheyHeld) {
  Bench bench;
  bench.slow = true;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::shared_ptr<EventLog>> logs;
    std::vector<RequestId> ids(50);
    for (std::uint64_t i = 0; i < 50; ++i) {
      logs.push_back(bench.submit(fake_job(i, 1 + i * 20, 400), &ids[i]));
    }
    std::this_thread::sleep_for(milliseconds(5 * round));
    for (const RequestId id : ids) bench.engine->cancel(id);
    for (const auto& log : logs) {
      EXPECT_EQ(log->wait()->reason, FinishReason::kCancelled);
    }
    ASSERT_TRUE(bench.settles());
  }
}

TEST(Engine, FailingStepsAreNotRetriedInATightLoop) {
  Bench bench(fake_options(), {.tolerated = 2, .first_pause = milliseconds(40)});
  bench.broken = true;
  int attempts = 0;
  int refusals = 0;
  const auto until = std::chrono::steady_clock::now() + milliseconds(400);
  while (std::chrono::steady_clock::now() < until) {
    const auto finish = bench.submit(fake_job(1, 5, 5))->wait();
    ASSERT_TRUE(finish.has_value());
    ASSERT_EQ(finish->reason, FinishReason::kError);
    if (finish->error->code == ErrorCode::kModelFault) {
      ++attempts;
      // A request hears of the failure a moment before the engine notes it.
      for (int i = 0; attempts > 2 && i < 1000 && bench.engine->healthy(); ++i) {
        std::this_thread::sleep_for(milliseconds(1));
      }
    } else {
      EXPECT_EQ(finish->error->code, ErrorCode::kUnavailable);
      ++refusals;
      EXPECT_FALSE(bench.steps == 0);
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  EXPECT_GT(refusals, 0);
  EXPECT_LE(attempts, 8);  // two tolerated, then pauses of 40, 80, 160, ... ms
  EXPECT_LE(bench.steps, 8);

  // Normal service right after: as soon as the running pause ends.
  bench.broken = false;
  std::optional<Finish> finish;
  for (int i = 0; i < 3000; ++i) {
    finish = bench.submit(fake_job(1, 5, 5))->wait();
    if (finish->reason == FinishReason::kLength) break;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(finish->reason, FinishReason::kLength);
  EXPECT_TRUE(bench.engine->healthy());
}

TEST(Engine, IsUnhealthyDuringAPauseAndStopsAtOnce) {
  Bench bench(fake_options(), {.tolerated = 0, .first_pause = milliseconds(60'000)});
  bench.broken = true;
  bench.submit(fake_job(1, 5, 5))->wait();
  for (int i = 0; i < 1000 && bench.engine->healthy(); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(bench.engine->healthy());
  const auto begin = std::chrono::steady_clock::now();
  bench.engine.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
}

TEST(Engine, EndsEveryRequestWhenItIsDestroyed) {
  Bench bench;
  bench.slow = true;
  std::vector<std::shared_ptr<EventLog>> logs;
  for (std::uint64_t i = 0; i < 5; ++i) logs.push_back(bench.submit(fake_job(i, 100, 1000)));
  bench.engine.reset();
  for (const auto& log : logs) {
    EXPECT_EQ(log->wait()->error->code, ErrorCode::kUnavailable);
  }
}

// Nothing should get so far; if something does, nobody is left waiting.
TEST(Engine, AThreadThatDiesTellsEverybodyAndTurnsRed) {
  class DeadlyOutputs final : public OutputFactory {
   public:
    std::unique_ptr<OutputPipeline> make_output(const PreparedJob& job) const override {
      if (job.prompt_ids.size() == 3) throw 42;
      return fine_.make_output(job);
    }
    std::string token_bytes(TokenId id) const override { return fine_.token_bytes(id); }

   private:
    FakeOutputs fine_;
  };
  const state::StateLayout layout = fake_layout();
  auto runner = std::make_unique<FakeRunner>();
  runner->before_step = [](std::span<const ScheduledRow>) {
    std::this_thread::sleep_for(milliseconds(1));
  };
  Engine engine(fake_options(), layout, std::move(runner), std::make_shared<DeadlyOutputs>());
  const auto running = EventLog::make();
  const auto deadly = EventLog::make();
  ASSERT_TRUE(engine.submit(fake_job(1, 50, 1000), EventLog::sink(running)).ok());
  ASSERT_TRUE(running->wait_events(1));
  ASSERT_TRUE(engine.submit(fake_job(1, 3, 1000), EventLog::sink(deadly)).ok());
  EXPECT_EQ(running->wait()->error->code, ErrorCode::kInternal);
  EXPECT_EQ(deadly->wait()->error->code, ErrorCode::kInternal);
  EXPECT_FALSE(engine.healthy());
  EXPECT_EQ(engine.submit(fake_job(1, 5, 5), EventLog::sink(EventLog::make())).error().code,
            ErrorCode::kUnavailable);
}

TEST(Engine, PausedReadersCanResumeFromAnotherThread) {
  Bench bench;
  auto log = EventLog::make();
  const auto id = bench.engine->submit(fake_job(3, 20, 40), EventLog::sink(log, 3));
  ASSERT_TRUE(id.ok());
  for (int i = 0; i < 5000; ++i) {
    const auto events = log->events();
    if (!events.empty() && events.back().finish) break;
    bench.engine->resume_output(*id);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(log->wait()->usage.completion_tokens, 40);
  EXPECT_EQ(log->ids().size(), 40u);
}

}  // namespace
}  // namespace flotilla::engine
