// Rows whose logits stay where they are computed, and rows that are sampled side by side: the
// tokens are those of one row after another with all its logits at hand.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "flotilla/backend/device_error.h"
#include "flotilla/engine/engine_core.h"
#include "flotilla/engine/fake_runner.h"
#include "flotilla/engine/row_sampler.h"
#include "flotilla/grammar/compiler.h"

namespace flotilla::engine {
namespace {

std::shared_ptr<const grammar::ConstraintPlan> letters() {
  std::vector<std::pair<TokenId, std::string>> tokens;
  for (TokenId id = 1; id < static_cast<TokenId>(kFakeVocab); ++id) {
    tokens.emplace_back(id, std::string(1, static_cast<char>('A' + id - 1)));
  }
  grammar::Constraint constraint;
  constraint.kind = grammar::Constraint::Kind::kRegex;
  constraint.text = "([A-F]{3}[N-Z])+";
  auto compiled = grammar::compile(constraint, nullptr, std::nullopt,
                                   grammar::Vocabulary::from(std::move(tokens), {{"<end>", 0}}));
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  auto plan = std::make_shared<grammar::ConstraintPlan>();
  plan->grammar = *compiled;
  return plan;
}

std::shared_ptr<PreparedJob> make_job(std::uint64_t number) {
  auto job = fake_job(number, 5 + number * 3 % 70, 10 + static_cast<std::int64_t>(number % 30));
  job->job.ignore_eos = number % 2 == 0;
  job->job.min_tokens = number % 3 == 0 ? 6 : 0;
  sampling::SamplingParams& p = job->job.sampling;
  p.temperature = number % 4 == 0 ? 0.0 : 0.9;
  p.top_k = number % 7 == 6 ? 0 : static_cast<int>(number % 5 * 8);
  p.top_p = number % 5 == 3 ? 0.9 : 1.0;
  p.repetition_penalty = number % 6 == 1 ? 1.2 : 1.0;
  p.frequency_penalty = number % 5 == 2 ? 0.4 : 0.0;
  if (number % 9 == 5) p.logit_bias = {{7, 3.5}, {9, -100.0}};
  p.seed = number;
  if (number % 8 == 7) job->job.top_logprobs = 2;
  if (number % 3 == 1) job->constraint = letters();
  return job;
}

struct Got {
  std::vector<TokenId> ids;
  std::optional<Finish> finish;
};
using AllGot = std::map<std::uint64_t, Got>;

void add(EngineCore& core, AllGot& got, std::uint64_t number) {
  core.accept(RequestId{number}, make_job(number), [&got, number](TokenEvent event) {
    got[number].ids.insert(got[number].ids.end(), event.ids.begin(), event.ids.end());
    if (event.finish) got[number].finish = event.finish;
    return true;
  });
}

constexpr std::uint64_t kJobs = 60;

AllGot alone() {
  AllGot got;
  for (std::uint64_t number = 1; number <= kJobs; ++number) {
    const state::StateLayout layout = fake_layout();
    EngineCore core(fake_options(), layout, std::make_unique<FakeRunner>(),
                    std::make_shared<FakeOutputs>());
    add(core, got, number);
    while (core.has_work()) core.step();
  }
  return got;
}

TEST(EngineSampling, RowsThatStayGetTheTokensOfRowsThatDoNot) {
  const AllGot expected = alone();
  for (unsigned seed = 0; seed < 4; ++seed) {
    const state::StateLayout layout = fake_layout();
    auto owned = std::make_unique<KeepingRunner>();
    KeepingRunner& runner = *owned;
    std::deque<std::shared_ptr<grammar::ConstrainedOutput>> wanted;
    EngineOptions options = fake_options();
    options.num_threads = 2;
    options.scheduler.force_preemption_every = seed % 2 == 0 ? 0 : 5;
    EngineCore core(options, layout, std::move(owned), std::make_shared<FakeOutputs>(),
                    [&](auto output) { wanted.push_back(std::move(output)); });
    AllGot got;
    for (std::uint64_t number = 1; number <= kJobs; ++number) add(core, got, number);
    const auto all_finished = [&] {
      return got.size() == kJobs && std::all_of(got.begin(), got.end(), [](const auto& g) {
               return g.second.finish.has_value();
             });
    };
    std::mt19937 random(seed);
    for (int step = 0; step < 20'000 && !all_finished(); ++step) {
      for (std::size_t n = wanted.size(); n > 0; --n) {
        auto output = std::move(wanted.front());
        wanted.pop_front();
        if (random() % 3 != 0) {
          output->compute();
        } else {
          wanted.push_back(std::move(output));
        }
      }
      core.step();
      core.check_integrity();
    }
    for (const auto& [number, one] : expected) {
      ASSERT_EQ(got[number].ids, one.ids) << "request " << number << ", seed " << seed;
      ASSERT_EQ(got[number].finish->reason, one.finish->reason) << number;
    }
    EXPECT_GT(runner.num_shortlists, 200u);
    EXPECT_GT(runner.num_chosen, 50u);
    EXPECT_GT(runner.num_read, 0u) << "no mask was late";
  }
}

TEST(EngineSampling, ALogitThatIsNoNumberEndsTheRequestOfItsRow) {
  const state::StateLayout layout = fake_layout();
  auto owned = std::make_unique<KeepingRunner>();
  owned->inner().poison = [](const Sequence& sequence) { return sequence.id == RequestId{2}; };
  EngineCore core(fake_options(), layout, std::move(owned), std::make_shared<FakeOutputs>());
  AllGot got;
  for (const std::uint64_t number : {2, 3, 8}) add(core, got, number);
  while (core.has_work()) core.step();
  EXPECT_EQ(got[2].finish->reason, FinishReason::kError);
  EXPECT_EQ(got[2].finish->error->code, ErrorCode::kModelFault);
  EXPECT_NE(got[3].finish->reason, FinishReason::kError);
  EXPECT_NE(got[8].finish->reason, FinishReason::kError);
}

// The device may tell of its fault only when it is asked for what stayed there.
TEST(EngineSampling, AFaultThenFailsTheStep) {
  const state::StateLayout layout = fake_layout();
  auto owned = std::make_unique<KeepingRunner>();
  int calls = 0;
  owned->before_shortlist = [&] {
    if (++calls == 3) throw backend::DeviceError("a kernel failed");
  };
  EngineCore core(fake_options(), layout, std::move(owned), std::make_shared<FakeOutputs>());
  AllGot got;
  add(core, got, 2);
  EngineCore::StepOutcome outcome = EngineCore::StepOutcome::kDone;
  while (core.has_work() && outcome == EngineCore::StepOutcome::kDone) outcome = core.step();
  EXPECT_EQ(outcome, EngineCore::StepOutcome::kFailed);
  EXPECT_EQ(got[2].finish->reason, FinishReason::kError);
  core.check_integrity();
  add(core, got, 3);
  while (core.has_work()) core.step();
  EXPECT_NE(got[3].finish->reason, FinishReason::kError);
}

TEST(RowSampler, ThreadsDoNotChangeTokens) {
  constexpr std::size_t kVocab = 20'000;
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(9 * kVocab);
  for (float& v : logits) v = normal(random);
  std::vector<sampling::Sampler> samplers;
  for (std::uint64_t i = 0; i < 9; ++i) {
    samplers.emplace_back(sampling::SamplingParams{.temperature = 1.1, .seed = i},
                          std::span<const TokenId>());
  }
  const auto run = [&](int threads) {
    std::vector<SamplingTask> tasks;
    for (std::size_t i = 0; i < samplers.size(); ++i) {
      tasks.push_back({.sampler = &samplers[i],
                       .logits = std::span(logits).subspan(i * kVocab, kVocab),
                       .top_logprobs = static_cast<int>(i) - 1});
    }
    RowSampler sampler(threads);
    sampler.run(tasks);
    return tasks;
  };
  const std::vector<SamplingTask> one = run(1), three = run(3);
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_TRUE(one[i].token.ok());
    EXPECT_EQ(*one[i].token, *three[i].token);
    ASSERT_EQ(one[i].logprobs.has_value(), i > 0);
    ASSERT_EQ(three[i].logprobs.has_value(), i > 0);
    if (i > 0) {
      EXPECT_EQ(one[i].logprobs->chosen, three[i].logprobs->chosen);
    }
  }
}

}  // namespace
}  // namespace flotilla::engine
