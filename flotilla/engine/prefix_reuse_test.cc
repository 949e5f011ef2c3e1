// The engine with its prefix cache: what a request gets never depends on it.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "flotilla/engine/fake_runner.h"

namespace flotilla::engine {
namespace {

using Ids = std::vector<TokenId>;
using Logits = std::vector<std::vector<float>>;

struct Kind {
  const char* name;
  state::StateLayout (*layout)();
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

struct Answer {
  Ids ids;
  Logits logits;  // of each token
  std::optional<Finish> finish;
};

struct Bench {
  explicit Bench(const Kind& kind, EngineOptions options = fake_options()) : layout(kind.layout()) {
    auto owned = std::make_unique<FakeRunner>(layout);
    runner = owned.get();
    runner->on_logits = [this](const Sequence& sequence, std::span<const float> logits) {
      got[sequence.id.value].logits.emplace_back(logits.begin(), logits.end());
    };
    core = std::make_unique<EngineCore>(options, layout, std::move(owned),
                                        std::make_shared<FakeOutputs>());
  }
  RequestId add(const Ids& prompt, std::int64_t max_tokens, std::string tenant = "t") {
    auto job = fake_job(0, 0, max_tokens);
    job->prompt_ids = prompt;
    job->job.tenant = std::move(tenant);
    const RequestId id{++last_id};
    core->accept(id, std::move(job), [this, id](TokenEvent event) {
      Answer& out = got[id.value];
      out.ids.insert(out.ids.end(), event.ids.begin(), event.ids.end());
      if (event.finish) out.finish = event.finish;
      return true;
    });
    return id;
  }
  void run() {
    for (int i = 0; i < 100000 && core->has_work(); ++i) core->step();
    core->check_integrity();
  }
  const Answer& ask(const Ids& prompt, std::int64_t max_tokens = 3, std::string tenant = "t") {
    const RequestId id = add(prompt, max_tokens, std::move(tenant));
    run();
    return got.at(id.value);
  }
  std::int64_t cached(const Ids& prompt, std::string tenant = "t") {
    return ask(prompt, 1, std::move(tenant)).finish->usage.cached_tokens;
  }

  state::StateLayout layout;
  FakeRunner* runner = nullptr;
  std::unique_ptr<EngineCore> core;
  std::map<std::uint64_t, Answer> got;
  std::uint64_t last_id = 0;
};

Ids ids(std::uint64_t seed, std::size_t count) { return fake_job(seed, count, 1)->prompt_ids; }
// The first `shared` tokens of `base`, then others, `length` in all.
Ids branch(const Ids& base, std::size_t shared, std::size_t length, std::uint64_t seed = 77) {
  Ids out = ids(seed, length);
  std::copy_n(base.begin(), shared, out.begin());
  if (shared < length && shared < base.size() && out[shared] == base[shared]) {
    out[shared] = (out[shared] + 1) % static_cast<TokenId>(kFakeVocab);
  }
  return out;
}
Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PrefixReuse : public testing::TestWithParam<Kind> {
 protected:
  static EngineOptions cold_options() {
    EngineOptions options = fake_options();
    options.prefix_cache.enabled = false;
    return options;
  }
  // The same question to an engine that knows nothing.
  Answer cold(const Ids& prompt, std::int64_t max_tokens = 3) {
    Bench bench(GetParam(), cold_options());
    return bench.ask(prompt, max_tokens);
  }
  void expect_as_cold(Bench& bench, const Ids& prompt, const std::string& what,
                      std::int64_t max_tokens = 3) {
    const Answer warm = bench.ask(prompt, max_tokens);
    const Answer expected = cold(prompt, max_tokens);
    ASSERT_EQ(warm.ids, expected.ids) << what;
    ASSERT_EQ(warm.logits, expected.logits) << what;
    EXPECT_EQ(expected.finish->usage.cached_tokens, 0);
  }
};

// A prompt of 40 tokens, then ones that share some of it; the window of the layouts is shorter.
TEST_P(PrefixReuse, AWrappedWindowIsNeverTakenUpAtTheWrongPlace) {
  const Ids base = ids(1, 40);
  for (const std::size_t shared : {0u, 1u, 15u, 16u, 17u, 30u, 31u, 32u, 33u, 39u, 40u}) {
    for (const std::int64_t generated : {1, 20, 60}) {
      Bench bench(GetParam());
      const Answer first = bench.ask(base, generated);
      const std::string what = std::to_string(shared) + " of 40, " + std::to_string(generated);
      expect_as_cold(bench, branch(base, shared, 40), what);
      expect_as_cold(bench, branch(base, shared, 90), what);
      // The answer is part of the next prompt, whole and cut.
      const Ids turn = joined(base, first.ids);
      expect_as_cold(bench, branch(turn, std::min(turn.size(), shared + 20), turn.size() + 50),
                     what);
      expect_as_cold(bench, joined(turn, ids(5, 40)), what);
    }
  }
  Bench bench(GetParam());
  bench.ask(base, 20);
  EXPECT_EQ(bench.cached(base), 32);
  EXPECT_EQ(bench.cached(branch(base, 39, 90)), 32);
  EXPECT_EQ(bench.cached(branch(base, 31, 90)), 0);
}

TEST_P(PrefixReuse, TheSamePromptAgainIsAHit) {
  Bench bench(GetParam());
  const Ids prompt = ids(1, 200);
  EXPECT_EQ(bench.cached(prompt), 0);
  const std::uint64_t before = bench.runner->tokens;
  EXPECT_EQ(bench.cached(prompt), 192);
  EXPECT_EQ(bench.runner->tokens - before, 8u);
  // A prompt of whole blocks leaves one to compute.
  const Ids whole = ids(2, 64);
  bench.ask(whole);
  EXPECT_EQ(bench.cached(whole), 32);
  const state::PrefixCacheStats stats = bench.core->stats().prefix_cache;
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.hit_tokens, 224u);
  EXPECT_GT(stats.bytes, 0u);
  EXPECT_EQ(bench.core->stats().kv_bytes_used, 0u);  // the cache's memory is free to who needs it
}

TEST_P(PrefixReuse, BranchesCutsAndExtensionsEqualACold) {
  const Ids base = ids(1, 160);
  Bench bench(GetParam());
  expect_as_cold(bench, base, "first");
  expect_as_cold(bench, base, "again");
  expect_as_cold(bench, joined(base, ids(2, 70)), "extended");
  expect_as_cold(bench, Ids(base.begin(), base.begin() + 100), "cut");
  for (const std::size_t at : {31u, 32u, 33u, 63u, 64u, 65u, 127u, 128u, 129u, 159u}) {
    expect_as_cold(bench, branch(base, at, 200), "branch at " + std::to_string(at));
    expect_as_cold(bench, joined(base, ids(at, 10)), "the trunk again");
    expect_as_cold(bench, branch(base, at, 200), "branch again at " + std::to_string(at));
  }
  bench.core->clear_prefix_cache();
  expect_as_cold(bench, base, "after eviction");
}

// Two requests with a long instruction in common differ after it: the third finds it.
TEST_P(PrefixReuse, WhatPromptsHaveInCommonIsFoundByTheThird) {
  Bench bench(GetParam());
  const Ids system = ids(1, 320);
  for (std::uint64_t user = 0; user < 2; ++user) bench.ask(joined(system, ids(10 + user, 50)));
  EXPECT_GE(bench.cached(joined(system, ids(20, 50))), 320);
}

TEST_P(PrefixReuse, AnAnswerThatWasGivenUpLeavesNothingWrong) {
  const Ids base = ids(1, 300);
  for (int steps = 1; steps < 12; ++steps) {
    EngineOptions options = fake_options();
    options.scheduler.prefill_chunk = 50;
    Bench bench(GetParam(), options);
    const RequestId id = bench.add(base, 100);
    for (int i = 0; i < steps; ++i) bench.core->step();
    bench.core->cancel(id);
    bench.core->check_integrity();
    expect_as_cold(bench, branch(base, 250, 320), "after " + std::to_string(steps) + " steps");
  }
}

TEST_P(PrefixReuse, AConversationIsWarmToItsLastTurn) {
  EngineOptions options = fake_options();
  options.context_length = 4000;
  Bench bench(GetParam(), options);
  options.prefix_cache.enabled = false;
  Bench other(GetParam(), options);
  Ids history;
  for (std::uint64_t turn = 0; turn < 30; ++turn) {
    history = joined(history, ids(100 + turn, 5 + turn * 3));
    const Answer warm = bench.ask(history, 10 + static_cast<std::int64_t>(turn));
    const Answer expected = other.ask(history, 10 + static_cast<std::int64_t>(turn));
    ASSERT_EQ(warm.ids, expected.ids) << "turn " << turn;
    ASSERT_EQ(warm.logits, expected.logits) << "turn " << turn;
    const std::int64_t new_tokens =
        static_cast<std::int64_t>(history.size()) - warm.finish->usage.cached_tokens;
    // The new question, the last token of the answer, and less than a block.
    EXPECT_LT(new_tokens, static_cast<std::int64_t>(5 + turn * 3) + 34) << "turn " << turn;
    history = joined(history, warm.ids);
  }
  EXPECT_LT(bench.runner->tokens * 4, other.runner->tokens);
}

TEST_P(PrefixReuse, LongPromptsHaveCheckpointsOnTheWay) {
  EngineOptions options = fake_options();
  options.prefix_cache.checkpoint_interval = 256;
  Bench bench(GetParam(), options);
  const Ids base = ids(1, 1500);
  bench.ask(base);
  const std::int64_t hit = bench.cached(branch(base, 1100, 1200));
  EXPECT_GE(hit, 1024);
  EXPECT_LE(hit, 1100);
  expect_as_cold(bench, branch(base, 700, 1200), "700");
}

TEST_P(PrefixReuse, TenantsNeverShare) {
  Bench bench(GetParam());
  const Ids prompt = ids(1, 300);
  bench.ask(prompt, 20, "a");
  const std::uint64_t before = bench.runner->tokens;
  const Answer second = bench.ask(prompt, 20, "b");
  EXPECT_EQ(second.finish->usage.cached_tokens, 0);
  EXPECT_EQ(bench.runner->tokens - before, 319u);  // all of it was computed: no time is saved
  EXPECT_EQ(bench.core->stats().prefix_cache.hits, 0u);
  EXPECT_EQ(bench.cached(prompt, "a"), 288);
  EXPECT_EQ(bench.cached(prompt, "b"), 288);
}

// Two at once: the second finds what the first has proved, not what it has merely computed.
TEST_P(PrefixReuse, WhatAFaultTouchedIsNotCachedAndNotKept) {
  const Ids prompt = ids(1, 200);
  {
    Bench bench(GetParam());
    bench.runner->poison = [](const Sequence&) { return true; };
    EXPECT_EQ(bench.ask(prompt).finish->error->code, ErrorCode::kModelFault);
    EXPECT_EQ(bench.core->stats().prefix_cache.bytes, 0u);
    EXPECT_EQ(bench.cached(prompt), 0);
  }
  {
    Bench bench(GetParam());
    bench.ask(prompt);
    EXPECT_GT(bench.core->stats().prefix_cache.bytes, 0u);
    // A NaN late in an answer: what it shares with the cache is not to be trusted either.
    bench.runner->poison = [](const Sequence& sequence) { return sequence.tokens.size() > 240; };
    EXPECT_EQ(bench.ask(prompt, 100).finish->error->code, ErrorCode::kModelFault);
    bench.runner->poison = nullptr;
    EXPECT_EQ(bench.core->stats().prefix_cache.bytes, 0u);
    expect_as_cold(bench, prompt, "after the fault");
  }
  {
    Bench bench(GetParam());
    bench.runner->before_step = [](auto) { throw std::runtime_error("device"); };
    EXPECT_EQ(bench.ask(prompt).finish->error->code, ErrorCode::kModelFault);
    bench.runner->before_step = nullptr;
    EXPECT_EQ(bench.core->stats().prefix_cache.bytes, 0u);
    EXPECT_EQ(bench.cached(prompt), 0);
  }
}

TEST_P(PrefixReuse, TheCacheGivesWayBeforeAnybodyIsPreempted) {
  EngineOptions options = fake_options();
  options.kv_bytes = fake_bytes(60);
  Bench bench(GetParam(), options);
  for (std::uint64_t i = 0; i < 8; ++i) bench.ask(ids(i, 300));
  EXPECT_GT(bench.core->stats().prefix_cache.evictions, 0u);
  const RequestId first = bench.add(ids(50, 250), 30);
  const RequestId second = bench.add(ids(51, 250), 30);
  bench.run();
  EXPECT_EQ(bench.core->num_preemptions(), 0u);
  for (const RequestId id : {first, second}) {
    EXPECT_EQ(bench.got.at(id.value).finish->reason, FinishReason::kLength);
  }
}

TEST_P(PrefixReuse, SwitchedOffItKeepsNothing) {
  Bench bench(GetParam(), cold_options());
  bench.ask(ids(1, 200));
  EXPECT_EQ(bench.cached(ids(1, 200)), 0);
  EXPECT_EQ(bench.core->stats().prefix_cache.misses, 0u);
  bench.core->clear_prefix_cache();
}

// Everything at once: shared prefixes, little memory, preemption and eviction by force, cancels.
TEST_P(PrefixReuse, NoScheduleChangesABit) {
  std::uint64_t hits = 0, evictions = 0, preemptions = 0;
  for (std::uint32_t seed = 0; seed < 16; ++seed) {
    std::mt19937 random(seed);
    EngineOptions options = fake_options();
    options.scheduler.max_batch_tokens = 8 + random() % 64;
    options.scheduler.prefill_chunk = 4 + random() % 60;
    options.scheduler.max_sequences = 2 + random() % 8;
    options.scheduler.force_preemption_every = 30 + random() % 60;
    options.scheduler.force_eviction_every = 40 + random() % 100;
    options.prefix_cache.checkpoint_interval = 64;
    options.kv_bytes = fake_bytes(80 + random() % 80);
    Bench bench(GetParam(), options);
    std::vector<std::pair<Ids, std::int64_t>> asked;
    std::vector<bool> cancelled;
    for (int i = 0; i < 30; ++i) {
      const Ids base = ids(random() % 3, 200);
      const std::size_t length = 1 + random() % 250;
      asked.emplace_back(
          branch(base, std::min<std::size_t>(random() % 200, length), length, random() % 4),
          1 + static_cast<std::int64_t>(random() % 40));
      const RequestId id = bench.add(asked.back().first, asked.back().second);
      for (std::uint64_t n = random() % 12; n > 0; --n) bench.core->step();
      cancelled.push_back(random() % 6 == 0);
      if (cancelled.back()) bench.core->cancel(id);
      bench.core->check_integrity();
    }
    bench.run();
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (cancelled[i]) continue;
      const Answer expected = cold(asked[i].first, asked[i].second);
      const Answer& got = bench.got.at(i + 1);
      ASSERT_EQ(got.ids, expected.ids) << "seed " << seed << " request " << i;
      ASSERT_EQ(got.logits, expected.logits) << "seed " << seed << " request " << i;
    }
    hits += bench.core->stats().prefix_cache.hits;
    evictions += bench.core->stats().prefix_cache.evictions;
    preemptions += bench.core->num_preemptions();
    EXPECT_EQ(bench.core->stats().kv_bytes_used, 0u);
  }
  EXPECT_GT(hits, 50u);
  EXPECT_GT(evictions, 50u);
  EXPECT_GT(preemptions, 20u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PrefixReuse,
                         testing::Values(Kind{"full", &fake_full_layout},
                                         Kind{"windows", &fake_layout},
                                         Kind{"hybrid", &fake_hybrid_layout},
                                         Kind{"mixed", &fake_mixed_layout}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace flotilla::engine
