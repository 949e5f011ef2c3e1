// Rows under constraints, in a batch with rows without.
#include <gtest/gtest.h>

#include <map>

#include "flotilla/engine/engine_core.h"
#include "flotilla/engine/fake_runner.h"
#include "flotilla/grammar/compiler.h"

namespace flotilla::engine {
namespace {

// Token n is one character; 0 is the end token.
constexpr std::string_view kTexts = "?{}[]\":,0123456789abcdefghijklmnopqrstuvwxyz-. ABCDEFGHIJ";

std::shared_ptr<const grammar::Vocabulary> vocabulary(std::string_view without = "") {
  std::vector<std::pair<TokenId, std::string>> tokens;
  for (std::size_t i = 1; i < kTexts.size(); ++i) {
    if (without.find(kTexts[i]) == std::string_view::npos) {
      tokens.emplace_back(static_cast<TokenId>(i), std::string(1, kTexts[i]));
    }
  }
  return grammar::Vocabulary::from(std::move(tokens), {{"<end>", 0}});
}

std::shared_ptr<const grammar::ConstraintPlan> plan(std::string_view pattern,
                                                    std::string_view without = "") {
  grammar::Constraint constraint;
  constraint.kind = grammar::Constraint::Kind::kRegex;
  constraint.text = pattern;
  auto compiled = grammar::compile(constraint, nullptr, std::nullopt, vocabulary(without));
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  auto out = std::make_shared<grammar::ConstraintPlan>();
  out->grammar = *compiled;
  return out;
}

std::string text_of(const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) {
    if (id != 0) out += kTexts[static_cast<std::size_t>(id)];
  }
  return out;
}

struct Got {
  std::vector<TokenId> ids;
  std::vector<TokenLogprob> logprobs;
  std::optional<Finish> finish;
};

std::vector<Got> run(const std::vector<std::shared_ptr<PreparedJob>>& jobs) {
  const state::StateLayout layout = fake_layout();
  EngineCore core(fake_options(), layout, std::make_unique<FakeRunner>(),
                  std::make_shared<FakeOutputs>());
  std::vector<Got> got(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    core.accept(RequestId{i + 1}, jobs[i], [&got, i](TokenEvent event) {
      got[i].ids.insert(got[i].ids.end(), event.ids.begin(), event.ids.end());
      for (auto& logprob : event.logprobs) got[i].logprobs.push_back(std::move(logprob));
      if (event.finish) got[i].finish = event.finish;
      return true;
    });
  }
  for (int step = 0; step < 10'000 && core.has_work(); ++step) core.step();
  core.check_integrity();
  return got;
}

std::shared_ptr<PreparedJob> job_under(std::shared_ptr<const grammar::ConstraintPlan> constraint,
                                       std::uint64_t seed, std::int64_t max_tokens) {
  auto job = fake_job(seed, 20 + seed, max_tokens);
  job->job.ignore_eos = false;
  job->job.sampling.temperature = 1.5;
  job->job.sampling.seed = seed;
  job->constraint = std::move(constraint);
  return job;
}

TEST(Constrained, AnswersFitAndNeighboursAreAsAlone) {
  const auto number = plan("\\{\"[a-z]{1,8}\":-?[1-9]\\d*\\}");
  std::vector<std::shared_ptr<PreparedJob>> jobs;
  for (std::uint64_t i = 0; i < 24; ++i) {
    jobs.push_back(job_under(i % 2 == 0 ? number : nullptr, i, 40));
    if (i % 3 == 0) jobs.back()->job.sampling.repetition_penalty = 1.2;  // B66: mixes of all kinds
    if (i % 5 == 0) jobs.back()->job.top_logprobs = 5;
    if (i % 7 == 0) jobs.back()->job.stop = {"zz"};
  }
  const auto got = run(jobs);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(got[i].finish.has_value());
    EXPECT_EQ(got[i].ids, run({jobs[i]})[0].ids) << i;
    if (i % 2 != 0) continue;
    EXPECT_EQ(got[i].finish->reason, FinishReason::kStop) << text_of(got[i].ids);
    EXPECT_EQ(text_of(got[i].ids).back(), '}');
    EXPECT_NE(got[i].ids.back(), 0);  // nothing could follow: no end token was needed
  }
}

TEST(Constrained, AResumedOutputGoesTheSameWay) {
  const auto number = plan("\\[(\\d+,)*\\d+\\]");
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const auto whole = run({job_under(number, seed, 30)})[0];
    EXPECT_EQ(whole.finish->reason, FinishReason::kStop) << text_of(whole.ids);
    for (std::size_t cut = 1; cut < whole.ids.size(); ++cut) {
      auto rest = job_under(number, seed, 30);
      rest->job.resume_ids.assign(whole.ids.begin(),
                                  whole.ids.begin() + static_cast<std::ptrdiff_t>(cut));
      ASSERT_EQ(run({rest})[0].ids, whole.ids) << "from " << cut;
    }
  }
}

TEST(Constrained, TokensThatDoNotFitEndThatRequestAlone) {
  auto resumed = job_under(plan("abc"), 1, 10);
  resumed->job.resume_ids = {5};
  // A vocabulary that cannot write what is demanded.
  auto impossible = job_under(plan("abc", "c"), 2, 10);
  const auto got =
      run({resumed, impossible, job_under(nullptr, 3, 10), job_under(plan("abc"), 4, 10)});
  EXPECT_EQ(got[0].finish->reason, FinishReason::kError);
  EXPECT_EQ(got[0].finish->error->code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(got[1].finish->reason, FinishReason::kError);
  EXPECT_EQ(got[1].finish->error->code, ErrorCode::kInternal);
  EXPECT_EQ(got[2].finish->reason, FinishReason::kLength);
  EXPECT_EQ(text_of(got[3].ids), "abc");
}

// B26: two legal tokens, 20 alternatives asked for, everything else impossible.
TEST(Constrained, LogprobsAreTheModelsAndFinite) {
  auto job = job_under(plan("(a|b){8}"), 1, 20);
  job->job.top_logprobs = 20;
  job->job.sampling.top_k = 1;
  const auto got = run({job})[0];
  ASSERT_EQ(got.logprobs.size(), got.ids.size());
  for (const TokenLogprob& item : got.logprobs) {
    EXPECT_GT(item.logprob, -10'000);
    EXPECT_EQ(item.top.size(), 20u);
    for (const TokenLogprob& top : item.top) EXPECT_GT(top.logprob, -10'000);
  }
}

TEST(Constrained, BiasPenaltiesAndEndsMeetTheConstraint) {
  auto job = job_under(plan("a{2,6}"), 1, 30);
  const auto a = static_cast<TokenId>(kTexts.find('a', 1));
  job->job.sampling.logit_bias = {{a, -100.0}, {0, 100.0}};  // wants to end at once
  job->job.sampling.presence_penalty = 2;
  EXPECT_EQ(text_of(run({job})[0].ids), "aa");
  job->job.min_tokens = 4;
  EXPECT_EQ(text_of(run({job})[0].ids), "aaaa");
  job->job.min_tokens = 20;  // the constraint has no more than six
  EXPECT_EQ(text_of(run({job})[0].ids), "aaaaaa");
  job->job.min_tokens = 0;
  job->job.ignore_eos = true;
  const auto endless = run({job})[0];
  EXPECT_EQ(text_of(endless.ids), "aaaaaa");
  EXPECT_EQ(endless.finish->reason, FinishReason::kStop);
}

}  // namespace
}  // namespace flotilla::engine
