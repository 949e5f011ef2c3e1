#include "flotilla/engine/engine_core.h"

#include <gtest/gtest.h>

#include <random>

#include "flotilla/engine/fake_runner.h"

namespace flotilla::engine {
namespace {

struct Collected {
  std::vector<TokenId> ids;
  std::string text;
  std::vector<TokenLogprob> logprobs;
  std::optional<Finish> finish;
  int finishes = 0;
};

// An engine without a thread, its runner, and what its requests received.
struct Bench {
  explicit Bench(EngineOptions the_options = fake_options()) : options(std::move(the_options)) {
    auto owned = std::make_unique<FakeRunner>();
    runner = owned.get();
    core = std::make_unique<EngineCore>(options, layout, std::move(owned),
                                        std::make_shared<FakeOutputs>());
  }
  RequestId add(std::shared_ptr<const PreparedJob> job, bool full_after_each = false) {
    const RequestId id{++last_id};
    core->accept(id, std::move(job), [this, id, full_after_each](TokenEvent event) {
      Collected& out = got[id.value];
      EXPECT_EQ(event.request, id);
      EXPECT_EQ(event.first_index, out.ids.size());
      EXPECT_FALSE(out.finish.has_value()) << "an event after the finish";
      out.ids.insert(out.ids.end(), event.ids.begin(), event.ids.end());
      for (const auto& delta : event.deltas) out.text += delta.text;
      for (auto& logprob : event.logprobs) out.logprobs.push_back(std::move(logprob));
      if (event.finish) {
        out.finish = event.finish;
        ++out.finishes;
      }
      return !full_after_each;
    });
    return id;
  }
  void run(int max_steps = 100000) {
    for (int i = 0; i < max_steps && core->has_work(); ++i) core->step();
    core->check_integrity();
  }
  const Collected& of(RequestId id) { return got[id.value]; }

  EngineOptions options;
  state::StateLayout layout = fake_layout();
  FakeRunner* runner = nullptr;
  std::unique_ptr<EngineCore> core;
  std::map<std::uint64_t, Collected> got;
  std::uint64_t last_id = 0;
};

Collected solo(const std::shared_ptr<const PreparedJob>& job) {
  Bench bench;
  const RequestId id = bench.add(job);
  bench.run();
  return bench.of(id);
}

// Jobs of every kind: greedy and seeded, penalties, stops, lengths.
std::shared_ptr<PreparedJob> mixed_job(std::mt19937& random, std::uint64_t number) {
  auto job = fake_job(number, 1 + random() % 150, 1 + static_cast<std::int64_t>(random() % 60));
  auto& sampling = job->job.sampling;
  sampling.seed = random();
  if (random() % 2 == 0) sampling.temperature = 0.8;
  if (random() % 3 == 0) sampling.repetition_penalty = 1.1;
  if (random() % 3 == 0) sampling.frequency_penalty = 0.5;
  if (random() % 3 == 0) sampling.top_k = 5;
  if (random() % 3 == 0) sampling.top_p = 0.7;
  if (random() % 3 == 0) job->job.ignore_eos = false;
  if (random() % 3 == 0) job->job.top_logprobs = static_cast<int>(random() % 4);
  if (random() % 4 == 0) job->job.stop = {"7 3", "11 "};
  if (random() % 4 == 0) job->job.min_tokens = 20;
  return job;
}

template <class T>
bool is_blank(const std::vector<T>& values) {  // the memory behind it, too
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  return std::all_of(bytes, bytes + values.capacity() * sizeof(T), [](auto b) { return b == 0; });
}

TEST(EngineCore, WipesWhatTheSamplerKnewWhenARequestEnds) {
  Bench bench;
  const auto job = fake_job(1, 20, 12);
  job->job.sampling.temperature = 0.8;
  job->job.sampling.frequency_penalty = 0.5;
  job->job.top_logprobs = 3;
  bench.add(job);
  for (int i = 0; i < 4; ++i) bench.core->step();
  EXPECT_FALSE(is_blank(bench.core->scratch().adjusted));
  EXPECT_FALSE(is_blank(bench.core->scratch().weights));
  bench.run();
  const sampling::SamplerScratch& scratch = bench.core->scratch();
  EXPECT_GT(scratch.adjusted.capacity(), 0u);
  EXPECT_TRUE(is_blank(scratch.adjusted) && is_blank(scratch.candidates) &&
              is_blank(scratch.sorting) && is_blank(scratch.weights));
}

TEST(EngineCore, ARequestGetsTheSameTokensAloneAndInAnyCrowd) {
  std::uint64_t preemptions = 0;
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    EngineOptions options = fake_options();
    options.scheduler.max_batch_tokens = 1 + random() % 64;
    options.scheduler.prefill_chunk = 1 + random() % 40;
    options.scheduler.max_sequences = 2 + random() % 16;
    options.kv_bytes = fake_bytes(14 + random() % 20);
    // Far enough apart for a prompt to be computed between two.
    options.scheduler.force_preemption_every =
        20 + 400 / std::min(options.scheduler.prefill_chunk, options.scheduler.max_batch_tokens);
    Bench bench(options);
    std::vector<std::shared_ptr<PreparedJob>> jobs;
    for (std::uint64_t i = 0; i < 32; ++i) {
      jobs.push_back(mixed_job(random, i));
      bench.add(jobs.back());
      for (std::uint64_t n = random() % 5; n > 0; --n) bench.core->step();  // joining mid-way
    }
    bench.run();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const Collected expected = solo(jobs[i]);
      const Collected& got = bench.of(RequestId{i + 1});
      ASSERT_EQ(got.ids, expected.ids) << "seed " << seed << " request " << i << " "
                                       << (got.finish->error ? got.finish->error->message : "");
      EXPECT_EQ(got.text, expected.text);
      EXPECT_EQ(got.finish->reason, expected.finish->reason);
      EXPECT_EQ(got.finish->usage.completion_tokens, static_cast<std::int64_t>(got.ids.size()));
      ASSERT_EQ(got.logprobs.size(), expected.logprobs.size());
      for (std::size_t n = 0; n < got.logprobs.size(); ++n) {
        EXPECT_EQ(got.logprobs[n].logprob, expected.logprobs[n].logprob);
      }
      EXPECT_EQ(got.finishes, 1);
    }
    preemptions += bench.core->num_preemptions();
    EXPECT_EQ(bench.core->stats().kv_bytes_used, 0u);
  }
  EXPECT_GT(preemptions, 20u);  // or the test shows less than it says
}

TEST(EngineCore, AResumedRequestContinuesExactly) {
  std::mt19937 random(3);
  for (std::uint64_t number = 0; number < 12; ++number) {
    const auto job = mixed_job(random, number);
    const Collected whole = solo(job);
    for (std::size_t n = 0; n <= whole.ids.size(); n += 1 + n / 4) {
      auto resumed = std::make_shared<PreparedJob>(*job);
      resumed->job.resume_ids.assign(whole.ids.begin(),
                                     whole.ids.begin() + static_cast<std::ptrdiff_t>(n));
      const Collected got = solo(resumed);
      ASSERT_EQ(got.ids, whole.ids) << "job " << number << " at " << n;
      EXPECT_EQ(got.text, whole.text);
      EXPECT_EQ(got.finish->reason, whole.finish->reason);
      EXPECT_EQ(got.finish->usage.completion_tokens, whole.finish->usage.completion_tokens);
    }
  }
}

TEST(EngineCore, AResumeThatIsCompleteComputesNothing) {
  auto job = fake_job(1, 10, 5);
  job->job.resume_ids = solo(job).ids;
  Bench bench;
  const RequestId id = bench.add(job);
  EXPECT_EQ(bench.of(id).finish->reason, FinishReason::kLength);
  EXPECT_FALSE(bench.core->has_work());
  EXPECT_EQ(bench.runner->steps, 0u);
}

TEST(EngineCore, EndsAtStopIdsMaxTokensAndTheContextEnd) {
  const std::vector<TokenId> free = solo(fake_job(5, 10, 30)).ids;
  {
    auto job = fake_job(5, 10, 30);
    job->job.stop_token_ids = {free[7]};
    const auto first = std::find(free.begin(), free.end(), free[7]) - free.begin();
    const Collected got = solo(job);
    EXPECT_EQ(got.finish->reason, FinishReason::kStop);
    EXPECT_EQ(got.finish->usage.completion_tokens, first + 1);
    EXPECT_EQ(got.ids.back(), free[7]);
    EXPECT_FALSE(got.text.ends_with(" " + std::to_string(free[7]) + " "));
  }
  EXPECT_EQ(solo(fake_job(5, 10, 30)).finish->reason, FinishReason::kLength);
  {
    EngineOptions options = fake_options();
    options.context_length = 128;
    for (const std::size_t prompt : {120u, 127u}) {
      Bench bench(options);
      const RequestId id = bench.add(fake_job(5, prompt, 100));
      bench.run();
      EXPECT_EQ(bench.of(id).ids.size(), 128 - prompt);
      EXPECT_EQ(bench.of(id).finish->reason, FinishReason::kLength);
    }
    Bench bench(options);
    const RequestId id = bench.add(fake_job(5, 128, 100));
    EXPECT_EQ(bench.of(id).finish->error->code, ErrorCode::kContextLength);
    const RequestId unlimited = bench.add(fake_job(5, 100, 0));
    bench.run();
    EXPECT_EQ(bench.of(unlimited).ids.size(), 28u);
  }
}

TEST(EngineCore, EveryEndTokenStopsUnlessToldToIgnore) {
  const std::vector<TokenId> free = solo(fake_job(8, 10, 40)).ids;
  EngineOptions options = fake_options();
  options.eos_ids = {1000000, free[20], free[10]};
  Bench bench(options);
  auto job = fake_job(8, 10, 40);
  job->job.ignore_eos = false;
  const RequestId stops = bench.add(job);
  const RequestId ignores = bench.add(fake_job(8, 10, 40));
  bench.run();
  EXPECT_EQ(bench.of(stops).finish->reason, FinishReason::kStop);
  EXPECT_LE(bench.of(stops).ids.size(), 11u);
  EXPECT_EQ(bench.of(ignores).ids, free);
  EXPECT_EQ(bench.of(ignores).finish->reason, FinishReason::kLength);
}

TEST(EngineCore, MinTokensHoldsBackEndTokens) {
  for (std::uint64_t number = 0; number < 20; ++number) {
    EngineOptions options = fake_options();
    for (TokenId id = 0; id < 30; ++id) options.eos_ids.push_back(id);  // half of the vocabulary
    Bench bench(options);
    auto job = fake_job(number, 5, 100);
    job->job.ignore_eos = false;
    job->job.min_tokens = 12;
    const RequestId id = bench.add(job);
    bench.run();
    EXPECT_GT(bench.of(id).ids.size(), 12u);
    EXPECT_EQ(bench.of(id).finish->reason, FinishReason::kStop);
  }
}

TEST(EngineCore, StopStringsEndTheGenerationAtOnce) {
  const Collected free = solo(fake_job(9, 10, 30));
  auto job = fake_job(9, 10, 30);
  // The end of one token's text and the beginning of the next.
  job->job.stop = {std::to_string(free.ids[4]) + " " + std::to_string(free.ids[5])};
  const Collected got = solo(job);
  EXPECT_EQ(got.finish->reason, FinishReason::kStop);
  EXPECT_EQ(got.finish->matched_stop, job->job.stop[0]);
  EXPECT_EQ(got.finish->usage.completion_tokens, 6);
  EXPECT_EQ(got.text, free.text.substr(0, free.text.find(job->job.stop[0])));
}

TEST(EngineCore, ARowWithNaNFailsAlone) {
  Bench bench;
  bench.runner->poison = [](const Sequence& s) { return s.id.value == 2 && s.tokens.size() >= 25; };
  const auto healthy = fake_job(1, 20, 30);
  const RequestId first = bench.add(healthy);
  const RequestId poisoned = bench.add(fake_job(2, 20, 30));
  bench.run();
  EXPECT_EQ(bench.of(first).ids, solo(healthy).ids);
  EXPECT_EQ(bench.of(poisoned).finish->reason, FinishReason::kError);
  EXPECT_EQ(bench.of(poisoned).finish->error->code, ErrorCode::kModelFault);
  EXPECT_EQ(bench.of(poisoned).ids.size(), 5u);  // what came before is not lost
}

TEST(EngineCore, AStepThatThrowsFailsOnlyItsOwnRows) {
  EngineOptions options = fake_options();
  options.scheduler.max_sequences = 2;
  Bench bench(options);
  int throws = 0;
  bench.runner->before_step = [&](std::span<const ScheduledRow> rows) {
    for (const ScheduledRow& row : rows) {
      if (row.sequence->id.value == 2 && row.sequence->tokens.size() == 24) {
        ++throws;
        throw std::runtime_error("device lost");
      }
    }
  };
  bench.add(fake_job(1, 20, 30));
  bench.add(fake_job(2, 20, 30));
  const auto later = fake_job(3, 20, 30);
  const RequestId third = bench.add(later);  // waits
  bench.run();
  EXPECT_EQ(throws, 1);
  for (const std::uint64_t id : {1u, 2u}) {
    EXPECT_EQ(bench.of(RequestId{id}).finish->error->code, ErrorCode::kModelFault);
    EXPECT_NE(bench.of(RequestId{id}).finish->error->message.find("device lost"),
              std::string::npos);
  }
  EXPECT_EQ(bench.of(third).ids, solo(later).ids);
  EXPECT_EQ(bench.core->stats().kv_bytes_used, 0u);
}

TEST(EngineCore, ASlowReaderPausesOnlyItself) {
  Bench bench;
  const auto slow_job = fake_job(1, 20, 10);
  const auto fast_job = fake_job(2, 20, 50);
  const RequestId slow = bench.add(slow_job, /*full_after_each=*/true);
  const RequestId fast = bench.add(fast_job);
  bench.run();
  EXPECT_EQ(bench.of(fast).ids, solo(fast_job).ids);
  EXPECT_EQ(bench.of(slow).ids.size(), 1u);
  for (int i = 0; i < 20; ++i) {
    bench.core->resume_output(slow);
    bench.run();
  }
  EXPECT_EQ(bench.of(slow).ids, solo(slow_job).ids);
  EXPECT_EQ(bench.of(slow).finishes, 1);
}

TEST(EngineCore, CancelFreesEverythingInEveryState) {
  EngineOptions options = fake_options();
  options.scheduler = {.max_batch_tokens = 16, .prefill_chunk = 8, .max_sequences = 3};
  Bench bench(options);
  const RequestId decoding = bench.add(fake_job(1, 4, 100));
  const RequestId in_prefill = bench.add(fake_job(2, 300, 100));
  const RequestId paused = bench.add(fake_job(3, 4, 100), true);
  const RequestId queued = bench.add(fake_job(4, 4, 100));
  for (int i = 0; i < 4; ++i) bench.core->step();
  for (const RequestId id : {decoding, in_prefill, paused, queued}) {
    bench.core->cancel(id);
    bench.core->cancel(id);  // idempotent
    EXPECT_EQ(bench.of(id).finish->reason, FinishReason::kCancelled);
    EXPECT_EQ(bench.of(id).finishes, 1);
  }
  EXPECT_EQ(bench.core->stats().kv_bytes_used, 0u);
  EXPECT_EQ(bench.core->stats().num_running, 0u);
  EXPECT_EQ(bench.core->stats().num_waiting, 0u);
  EXPECT_FALSE(bench.core->has_work());
  EXPECT_EQ(bench.core->take_finished().size(), 4u);
}

TEST(EngineCore, ASinkThatThrowsEndsItsOwnRequest) {
  Bench bench;
  bench.core->accept(RequestId{100}, fake_job(1, 5, 50),
                     [](TokenEvent) -> bool { throw std::runtime_error("reader gone"); });
  const auto job = fake_job(2, 5, 50);
  const RequestId other = bench.add(job);
  bench.run();
  EXPECT_EQ(bench.of(other).ids, solo(job).ids);
  EXPECT_EQ(bench.core->stats().kv_bytes_used, 0u);
}

TEST(EngineCore, BadJobsAreRefusedAlone) {
  Bench bench;
  auto bad_sampling = fake_job(1, 5, 5);
  bad_sampling->job.sampling.repetition_penalty = 0;
  auto bad_token = fake_job(1, 5, 5);
  bad_token->prompt_ids[2] = static_cast<TokenId>(kFakeVocab);
  auto bad_resume = fake_job(1, 5, 5);
  bad_resume->job.resume_ids = {-1};
  for (const auto& job : {bad_sampling, bad_token, bad_resume}) {
    const RequestId id = bench.add(job);
    EXPECT_EQ(bench.of(id).finish->error->code, ErrorCode::kInvalidArgument);
  }
  const auto good = fake_job(2, 5, 5);
  const RequestId id = bench.add(good);
  bench.run();
  EXPECT_EQ(bench.of(id).ids, solo(good).ids);
}

TEST(EngineCore, ASequenceThatOutgrowsTheMemoryEndsWithTheNumbers) {
  EngineOptions options = fake_options();
  options.kv_bytes = fake_bytes(8);
  options.scheduler.prefill_chunk = 32;
  Bench bench(options);
  const RequestId id = bench.add(fake_job(1, 30, 1000));
  bench.run();
  EXPECT_EQ(bench.of(id).finish->error->code, ErrorCode::kResourceExhausted);
  EXPECT_GT(bench.of(id).ids.size(), 30u);
}

TEST(EngineCore, LogprobsAreOfTheRawRowAndPerToken) {
  auto job = fake_job(4, 12, 8);
  job->job.top_logprobs = 3;
  job->job.sampling.temperature = 0.7;
  job->job.sampling.top_k = 1;
  const Collected got = solo(job);
  ASSERT_EQ(got.logprobs.size(), got.ids.size());
  for (std::size_t i = 0; i < got.ids.size(); ++i) {
    EXPECT_EQ(got.logprobs[i].id, got.ids[i]);
    ASSERT_EQ(got.logprobs[i].top.size(), 3u);
    EXPECT_EQ(got.logprobs[i].top[0].id, got.ids[i]);
    EXPECT_EQ(got.logprobs[i].bytes, std::to_string(got.ids[i]) + " ");
    EXPECT_LE(got.logprobs[i].logprob, 0.0);
  }
}

TEST(EngineCore, EqualSeededRequestsAreEqualAndChoicesDiffer) {
  Bench bench;
  std::vector<RequestId> ids;
  for (const std::uint32_t choice : {0u, 1u, 2u, 0u}) {
    auto job = fake_job(4, 12, 20);
    job->job.sampling = {.temperature = 1, .seed = 7, .choice = choice};
    ids.push_back(bench.add(job));
  }
  bench.run();
  EXPECT_NE(bench.of(ids[0]).ids, bench.of(ids[1]).ids);
  EXPECT_NE(bench.of(ids[1]).ids, bench.of(ids[2]).ids);
  EXPECT_EQ(bench.of(ids[0]).ids, bench.of(ids[3]).ids);
}

}  // namespace
}  // namespace flotilla::engine
