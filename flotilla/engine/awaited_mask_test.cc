// Masks that are computed beside the steps: whenever they come, answers are the same, and nobody
// else waits for them.
#include <gtest/gtest.h>

#include <ctime>
#include <deque>
#include <map>
#include <random>

#include "flotilla/engine/engine.h"
#include "flotilla/engine/engine_test_util.h"
#include "flotilla/engine/fake_runner.h"
#include "flotilla/grammar/compiler.h"

namespace flotilla::engine {
namespace {

// Token n is one character, 0 the end token; beyond the model's vocabulary come `extra` words.
std::shared_ptr<const grammar::Vocabulary> vocabulary(int extra) {
  constexpr std::string_view kTexts = "?{}[]\":,0123456789abcdefghijklmnopqrstuvwxyz-. ABCDEFGHIJ";
  std::vector<std::pair<TokenId, std::string>> tokens;
  for (std::size_t i = 1; i < kTexts.size(); ++i) {
    tokens.emplace_back(static_cast<TokenId>(i), std::string(1, kTexts[i]));
  }
  std::mt19937 random(1);
  for (int i = 0; i < extra; ++i) {
    std::string word;
    for (std::size_t length = 2 + random() % 8; word.size() < length;) {
      word += static_cast<char>('a' + random() % 26);
    }
    tokens.emplace_back(static_cast<TokenId>(100 + i), std::move(word));
  }
  return grammar::Vocabulary::from(std::move(tokens), {{"<end>", 0}});
}

std::shared_ptr<const grammar::ConstraintPlan> plan(
    std::string_view pattern, const std::shared_ptr<const grammar::Vocabulary>& words) {
  grammar::Constraint constraint;
  constraint.kind = grammar::Constraint::Kind::kRegex;
  constraint.text = pattern;
  auto compiled = grammar::compile(constraint, nullptr, std::nullopt, words);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  auto out = std::make_shared<grammar::ConstraintPlan>();
  out->grammar = *compiled;
  return out;
}

// Every position is a configuration of its own: each mask of each job is cold.
std::shared_ptr<PreparedJob> constrained_job(std::uint64_t seed,
                                             std::shared_ptr<const grammar::ConstraintPlan> plan) {
  auto job = fake_job(seed, 20 + seed * 7, 60);
  job->job.ignore_eos = false;
  job->job.sampling.temperature = 1.5;
  job->job.sampling.seed = seed;
  job->constraint = std::move(plan);
  return job;
}

struct Bench {
  explicit Bench(MaskRequest request, const EngineOptions& options = fake_options()) {
    core = std::make_unique<EngineCore>(options, layout, std::make_unique<FakeRunner>(),
                                        std::make_shared<FakeOutputs>(), std::move(request));
  }
  void add(std::uint64_t id, std::shared_ptr<const PreparedJob> job) {
    core->accept(RequestId{id}, std::move(job), [this, id](TokenEvent event) {
      ids[id].insert(ids[id].end(), event.ids.begin(), event.ids.end());
      if (event.finish) finishes[id] = event.finish;
      return true;
    });
  }

  state::StateLayout layout = fake_layout();
  std::unique_ptr<EngineCore> core;
  std::map<std::uint64_t, std::vector<TokenId>> ids;
  std::map<std::uint64_t, std::optional<Finish>> finishes;
};

std::vector<TokenId> alone(const std::shared_ptr<const PreparedJob>& job) {
  Bench bench({});
  bench.add(1, job);
  while (bench.core->has_work()) bench.core->step();
  return bench.ids[1];
}

using Wanted = std::deque<std::shared_ptr<grammar::ConstrainedOutput>>;

TEST(AwaitedMasks, NeighboursGoOnWithoutThem) {
  const auto words = vocabulary(0);
  Wanted wanted;
  Bench bench([&](auto output) { wanted.push_back(std::move(output)); });
  const auto constrained = constrained_job(1, plan("[a-z]{30}", words));
  const auto free = constrained_job(2, nullptr);
  bench.add(1, constrained);
  bench.add(2, free);
  while (bench.core->has_work()) bench.core->step();
  EXPECT_EQ(bench.ids[2], alone(free));
  EXPECT_TRUE(bench.finishes[2].has_value());
  EXPECT_TRUE(bench.ids[1].empty());
  // It is neither lost nor taken for one that finds no memory.
  EXPECT_EQ(bench.core->step(), EngineCore::StepOutcome::kIdle);
  EXPECT_FALSE(bench.finishes[1].has_value());
  bench.core->check_integrity();
  for (int i = 0; i < 1000 && !bench.finishes[1]; ++i) {
    for (const auto& output : std::exchange(wanted, {})) output->compute();
    bench.core->step();
  }
  EXPECT_EQ(bench.ids[1], alone(constrained));
  EXPECT_EQ(bench.finishes[1]->reason, FinishReason::kStop);
  bench.core->check_integrity();
}

TEST(AwaitedMasks, WheneverTheyComeAnswersAreTheSame) {
  const auto words = vocabulary(0);
  for (unsigned seed = 0; seed < 12; ++seed) {
    EngineOptions options = fake_options();
    options.kv_bytes = fake_bytes(60);
    options.scheduler.force_preemption_every = seed % 3 == 0 ? 0 : 2 + seed % 5;
    options.scheduler.force_eviction_every = seed % 4 == 0 ? 0 : 3;
    Wanted wanted;
    Bench bench([&](auto output) { wanted.push_back(std::move(output)); }, options);
    std::vector<std::shared_ptr<PreparedJob>> jobs;
    for (std::uint64_t i = 1; i <= 12; ++i) {
      jobs.push_back(
          constrained_job(i, i % 3 == 0 ? nullptr : plan("\\{[a-z]{10}(,\\d)+\\}", words)));
      if (i == 5) jobs.back()->job.resume_ids = {alone(jobs.back())[0], alone(jobs.back())[1]};
      bench.add(i, jobs.back());
    }
    std::mt19937 random(seed);
    for (int step = 0; step < 20'000 && bench.finishes.size() < jobs.size(); ++step) {
      for (std::size_t n = wanted.size(); n > 0; --n) {
        auto output = std::move(wanted.front());
        wanted.pop_front();
        if (random() % 3 == 0) {
          output->compute();
        } else {
          wanted.push_back(std::move(output));
        }
      }
      bench.core->step();
      bench.core->check_integrity();
    }
    for (std::uint64_t i = 1; i <= jobs.size(); ++i) {
      ASSERT_EQ(bench.ids[i], alone(jobs[i - 1])) << "job " << i << ", seed " << seed;
    }
  }
}

TEST(AwaitedMasks, ThoseWhoWaitCanBeCancelledAndOverdue) {
  const auto words = vocabulary(0);
  Wanted wanted;
  Bench bench([&](auto output) { wanted.push_back(std::move(output)); });
  for (std::uint64_t i = 1; i <= 4; ++i) {
    bench.add(i, constrained_job(i, plan("[a-z]{30}", words)));
  }
  while (bench.core->has_work()) bench.core->step();
  bench.core->cancel(RequestId{2});
  EXPECT_EQ(bench.finishes[2]->reason, FinishReason::kCancelled);
  for (const auto& output : wanted) output->compute();  // of those that have gone, too
  bench.core->step();
  bench.core->check_integrity();
  bench.core->end_all({ErrorCode::kUnavailable, "stopping"});
  for (std::uint64_t i = 1; i <= 4; ++i) EXPECT_TRUE(bench.finishes[i].has_value()) << i;
  bench.core->check_integrity();
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Many new constraints over a large vocabulary arrive beside a request without one. What the
// engine's thread spends is a small part of what their masks cost.
TEST(AwaitedMasks, TheEnginesThreadDoesNotWalkTheVocabulary) {
  const auto words = vocabulary(kSanitized ? 10'000 : 100'000);
  constexpr std::uint64_t kJobs = 12;
  const auto job = [&](std::uint64_t i) {
    std::string pattern = "(";
    for (int c = 0; c < 8; ++c) pattern += "[a-z]{" + std::to_string(i) + "}[A-J]";
    return constrained_job(i, plan(pattern + ")+", words));
  };
  std::vector<std::vector<TokenId>> expected;
  const double before = thread_seconds();
  for (std::uint64_t i = 1; i <= kJobs; ++i) expected.push_back(alone(job(i)));
  const double in_the_step = thread_seconds() - before;

  const state::StateLayout layout = fake_layout();
  double spent = 0;
  double begun = 0;
  Engine engine(fake_options(), layout, std::make_unique<FakeRunner>(),
                std::make_shared<FakeOutputs>());
  auto neighbour = fake_job(99, 20, 1900);
  const auto log = EventLog::make();
  ASSERT_TRUE(engine
                  .submit(neighbour,
                          [&, sink = EventLog::sink(log)](TokenEvent event) {
                            if (event.first_index == 0) begun = thread_seconds();
                            if (event.finish) spent = thread_seconds() - begun;
                            return sink(std::move(event));
                          })
                  .ok());
  std::vector<std::shared_ptr<EventLog>> logs;
  for (std::uint64_t i = 1; i <= kJobs; ++i) {
    logs.push_back(EventLog::make());
    ASSERT_TRUE(engine.submit(job(i), EventLog::sink(logs.back())).ok());
  }
  for (std::uint64_t i = 0; i < kJobs; ++i) {
    ASSERT_TRUE(logs[i]->wait().has_value());
    EXPECT_EQ(logs[i]->ids(), expected[i]) << i;
  }
  ASSERT_TRUE(log->wait().has_value());
  std::printf("masks in the step: %.1f ms; beside it the engine's thread spends %.1f ms\n",
              in_the_step * 1e3, spent * 1e3);
  EXPECT_LT(spent, in_the_step / 2);
}

}  // namespace
}  // namespace flotilla::engine
