#include "flotilla/engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "flotilla/engine/fake_runner.h"

namespace flotilla::engine {
namespace {

// A scheduler with its pool, and a model that merely says which tokens it computed.
struct Bench {
  explicit Bench(SchedulerOptions options, std::size_t pages = 1000)
      : layout(fake_layout()), pool(fake_bytes(pages)), scheduler(options, layout, pool) {}

  RequestId add(std::size_t tokens, std::string tenant = "t") {
    const RequestId id{++last_id};
    scheduler.add(id, std::move(tenant), std::vector<TokenId>(tokens, 1));
    return id;
  }
  // One step; every sequence whose logits came gets a token. What each computed, by id.
  std::map<std::uint64_t, std::int64_t> step() {
    const auto rows = scheduler.schedule();
    scheduler.complete(rows);
    std::map<std::uint64_t, std::int64_t> computed;
    std::int64_t total = 0;
    for (const ScheduledRow& row : rows) {
      computed[row.sequence->id.value] += row.count;
      total += row.count;
      if (row.wants_logits) {
        row.sequence->tokens.push_back(1);
        ++generated[row.sequence->id.value];
      }
    }
    EXPECT_LE(total, max_tokens_in_step);
    scheduler.check_integrity();
    return computed;
  }
  SequenceStatus status(RequestId id) { return scheduler.find(id)->status; }

  state::StateLayout layout;
  state::PagePool pool;
  Scheduler scheduler;
  std::uint64_t last_id = 0;
  std::int64_t max_tokens_in_step = 1 << 20;
  std::map<std::uint64_t, int> generated;
};

using Computed = std::map<std::uint64_t, std::int64_t>;

TEST(Scheduler, CutsPromptsIntoChunksUnderTheTokenBudget) {
  Bench bench({.max_batch_tokens = 20, .prefill_chunk = 16});
  bench.max_tokens_in_step = 20;
  bench.add(40);
  bench.add(50);
  EXPECT_EQ(bench.step(), (Computed{{1, 16}, {2, 4}}));
  EXPECT_EQ(bench.step(), (Computed{{1, 16}, {2, 4}}));
  EXPECT_EQ(bench.step(), (Computed{{1, 8}, {2, 12}}));
  EXPECT_EQ(bench.generated[1], 1);
}

TEST(Scheduler, MixesDecodeRowsWithPrefillChunks) {
  Bench bench({.max_batch_tokens = 32, .prefill_chunk = 16});
  bench.max_tokens_in_step = 32;
  bench.add(4);
  bench.step();
  bench.add(100);
  EXPECT_EQ(bench.step(), (Computed{{1, 1}, {2, 16}}));
  EXPECT_EQ(bench.step(), (Computed{{1, 1}, {2, 16}}));
  EXPECT_EQ(bench.generated[1], 3);
}

TEST(Scheduler, AdmitsNoMoreThanMaxSequences) {
  Bench bench({.max_sequences = 1});  // the sequential route
  const RequestId first = bench.add(4);
  const RequestId second = bench.add(4);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(bench.step().size(), 1u);
  EXPECT_EQ(bench.status(second), SequenceStatus::kWaiting);
  bench.scheduler.remove(first);
  bench.step();
  EXPECT_EQ(bench.status(second), SequenceStatus::kRunning);
}

TEST(Scheduler, AdmitsOnlyWhatThePagesCanHold) {
  // 64 tokens and the next: 3 pages in the full layer, and a window's worth.
  Bench bench({.prefill_chunk = 32}, 12);
  const RequestId first = bench.add(64);
  const RequestId second = bench.add(64);
  const RequestId third = bench.add(64);
  bench.step();
  EXPECT_EQ(bench.status(first), SequenceStatus::kRunning);
  EXPECT_EQ(bench.status(second), SequenceStatus::kRunning);
  EXPECT_EQ(bench.status(third), SequenceStatus::kWaiting);
}

TEST(Scheduler, PreemptsTheNewestSequenceWhenPagesRunOut) {
  Bench bench({.prefill_chunk = 16}, 8);
  const RequestId old_id = bench.add(30);
  const RequestId new_id = bench.add(30);
  bench.step();
  EXPECT_EQ(bench.status(new_id), SequenceStatus::kRunning);
  for (int i = 0; i < 200 && bench.status(new_id) == SequenceStatus::kRunning; ++i) bench.step();
  EXPECT_EQ(bench.status(old_id), SequenceStatus::kRunning);
  EXPECT_EQ(bench.status(new_id), SequenceStatus::kPreempted);
  EXPECT_EQ(bench.scheduler.find(new_id)->state.num_pages(), 0u);
  // When the old one is gone, the new one computes all its tokens again.
  const auto length = static_cast<std::int64_t>(bench.scheduler.find(new_id)->tokens.size());
  bench.scheduler.remove(old_id);
  std::int64_t computed = 0;
  const int before = bench.generated[new_id.value];
  while (bench.generated[new_id.value] == before) computed += bench.step()[new_id.value];
  EXPECT_EQ(computed, length);
}

TEST(Scheduler, PausedSequencesGetNoRowsAndLoseTheirPagesFirst) {
  Bench bench({.prefill_chunk = 16}, 6);
  const RequestId paused = bench.add(30);
  const RequestId active = bench.add(30);
  bench.step();
  bench.step();
  bench.scheduler.set_reader_full(paused, true);
  EXPECT_EQ(bench.status(paused), SequenceStatus::kPaused);
  const int before = bench.generated[paused.value];
  for (int i = 0; i < 60; ++i) bench.step();
  EXPECT_EQ(bench.generated[paused.value], before);
  EXPECT_EQ(bench.status(active), SequenceStatus::kRunning);
  EXPECT_EQ(bench.status(paused), SequenceStatus::kPreempted);  // although it came first
  bench.scheduler.remove(active);
  EXPECT_TRUE(bench.step().empty());
  EXPECT_EQ(bench.scheduler.stuck(), nullptr);
  bench.scheduler.set_reader_full(paused, false);
  for (int i = 0; i < 10; ++i) bench.step();
  EXPECT_GT(bench.generated[paused.value], before);
}

TEST(Scheduler, APausedSequenceHoldsNoPlaceThatAnotherWants) {
  Bench bench({.max_sequences = 1});
  const RequestId slow = bench.add(8);
  bench.step();
  bench.scheduler.set_reader_full(slow, true);
  EXPECT_TRUE(bench.step().empty());
  EXPECT_EQ(bench.status(slow), SequenceStatus::kPaused);  // nobody wants its place yet
  const RequestId other = bench.add(8);
  bench.step();
  EXPECT_EQ(bench.status(slow), SequenceStatus::kPreempted);
  EXPECT_EQ(bench.status(other), SequenceStatus::kRunning);
}

TEST(Scheduler, AShortPromptDoesNotWaitForLongOnes) {
  Bench bench({.max_batch_tokens = 64, .prefill_chunk = 64}, 100000);
  for (int i = 0; i < 8; ++i) bench.add(4000);
  for (int i = 0; i < 3; ++i) bench.step();
  const RequestId hi = bench.add(10);
  bench.step();
  EXPECT_EQ(bench.generated[hi.value], 1);
}

TEST(Scheduler, ALongPromptIsNotPutOffForEver) {
  Bench bench({.max_batch_tokens = 64, .prefill_chunk = 64}, 100000);
  const RequestId tall = bench.add(1280);  // 20 chunks
  int steps = 0;
  while (bench.generated[tall.value] == 0 && steps < 1000) {
    const RequestId small = bench.add(64);  // a new one in every step
    bench.step();
    if (bench.generated[small.value] > 0) bench.scheduler.remove(small);
    ++steps;
  }
  EXPECT_LT(steps, 100);
}

TEST(Scheduler, OneTenantCannotTakeAllPlacesFromAnother) {
  Bench bench({.max_batch_tokens = 64, .prefill_chunk = 64, .max_sequences = 16}, 100000);
  bench.add(8, "b");
  bench.step();
  bench.scheduler.remove(RequestId{1});
  bench.add(8, "b");  // the engine knows of two tenants
  std::vector<RequestId> greedy;
  for (int i = 0; i < 64; ++i) greedy.push_back(bench.add(500, "a"));
  bench.scheduler.remove(RequestId{2});
  for (int i = 0; i < 20; ++i) bench.step();
  EXPECT_EQ(bench.scheduler.num_running(), 14);
  const RequestId hi = bench.add(8, "b");
  bench.step();
  EXPECT_EQ(bench.generated[hi.value], 1);
}

TEST(Scheduler, OneThatNeedsMoreMemoryLetsOthersPassButNotForEver) {
  Bench bench({.prefill_chunk = 32, .max_bypass = 10}, 30);
  const RequestId holder = bench.add(300);
  for (int i = 0; i < 20; ++i) bench.step();
  const RequestId big = bench.add(500);
  int passed = 0;
  for (int i = 0; i < 40; ++i) {
    const RequestId small = bench.add(8);
    bench.step();
    bench.step();
    if (bench.generated[small.value] > 0) ++passed;
    bench.scheduler.remove(small);
  }
  EXPECT_EQ(passed, 10);
  EXPECT_EQ(bench.status(big), SequenceStatus::kWaiting);
  bench.scheduler.remove(holder);
  for (int i = 0; i < 20; ++i) bench.step();
  EXPECT_GT(bench.generated[big.value], 0);
}

TEST(Scheduler, TakesTurnsWhenMoreSequencesDecodeThanFitAStep) {
  Bench bench({.max_batch_tokens = 8, .prefill_chunk = 8, .max_sequences = 24});
  bench.max_tokens_in_step = 8;
  for (int i = 0; i < 20; ++i) bench.add(2);
  for (int i = 0; i < 40; ++i) bench.step();
  const auto before = bench.generated;
  for (int i = 0; i < 100; ++i) bench.step();
  for (const auto& [id, count] : bench.generated) EXPECT_EQ(count - before.at(id), 40);
}

TEST(Scheduler, ASequenceThatCanNeverFitIsFound) {
  Bench bench({.prefill_chunk = 32}, 6);
  const RequestId huge = bench.add(32 * 10);
  EXPECT_TRUE(bench.step().empty());
  ASSERT_NE(bench.scheduler.stuck(), nullptr);
  EXPECT_EQ(bench.scheduler.stuck()->id, huge);
}

TEST(Scheduler, ARemovedSequenceGivesEverythingBack) {
  Bench bench({.prefill_chunk = 16});
  const RequestId waiting_for_decode = bench.add(8);
  const RequestId in_prefill = bench.add(100);
  bench.step();
  bench.scheduler.remove(waiting_for_decode);
  bench.scheduler.remove(in_prefill);
  EXPECT_EQ(bench.pool.used_bytes(), 0u);
  EXPECT_FALSE(bench.scheduler.has_runnable());
}

// A new short prompt comes with every step; the long one moves with at least half the budget.
TEST(Scheduler, AStreamOfShortPromptsDoesNotStarveALongOne) {
  Bench bench({.max_batch_tokens = 64, .prefill_chunk = 32, .max_sequences = 8}, 100000);
  for (int i = 0; i < 20; ++i) bench.add(30);
  const RequestId long_one = bench.add(2000);
  std::uint64_t next_end = 1;
  int steps = 0;
  while (bench.generated[long_one.value] == 0 && ++steps < 1000) {
    bench.add(30);
    bench.step();
    // Each short one wants one token.
    for (; next_end < bench.last_id && bench.generated[next_end] > 0; ++next_end) {
      if (next_end != long_one.value) bench.scheduler.remove(RequestId{next_end});
    }
  }
  EXPECT_LT(steps, 20 + 2000 / 32 + 70) << "first token of the long prompt";
}

// 64 jobs of 8,000 tokens by one tenant that never end, and now and then a greeting by another
// (B73). Places and memory are all taken when the first one comes.
TEST(Scheduler, AStreamOfLongPromptsDoesNotStarveShortOnes) {
  for (const std::size_t pages : {100'000u, 3'000u}) {
    Bench bench({.max_batch_tokens = 256, .prefill_chunk = 128, .max_sequences = 16}, pages);
    for (int i = 0; i < 64; ++i) bench.add(8000, "a");
    int worst = 0;
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 5; ++i) bench.step();
      const RequestId greeting = bench.add(12, "b");
      int steps = 0;
      while (bench.generated[greeting.value] == 0 && steps < 50) {
        bench.step();
        ++steps;
      }
      bench.scheduler.remove(greeting);
      worst = std::max(worst, steps);
    }
    EXPECT_LE(worst, 2) << pages;
    EXPECT_LE(bench.scheduler.num_preemptions(), 3u)
        << "the long ones must not pay again and again";
  }
}

// Whoever has nothing running is admitted first, but a crowd of newcomers does not keep out a
// tenant's second request.
TEST(Scheduler, AStreamOfNewTenantsDoesNotStarveASecondRequest) {
  Bench bench({.max_batch_tokens = 64, .max_sequences = 2, .max_bypass = 10});
  const RequestId endless = bench.add(10, "a");
  bench.step();
  const RequestId second = bench.add(10, "a");
  int admissions = 0;
  for (int i = 0; i < 200 && bench.generated[second.value] == 0; ++i) {
    const RequestId newcomer = bench.add(5, "tenant " + std::to_string(i));
    bench.step();
    bench.step();
    admissions += bench.generated[newcomer.value] > 0 ? 1 : 0;
    bench.scheduler.remove(newcomer);
  }
  EXPECT_GT(bench.generated[second.value], 0);
  EXPECT_GT(bench.generated[endless.value], 10);
  EXPECT_LE(admissions, 11);  // and one in the same step
}

// Anything may happen in any order; nobody is lost, nothing leaks, everybody gets to the end.
TEST(Scheduler, SurvivesRandomTraffic) {
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](std::uint32_t n) {
      return static_cast<std::int64_t>(random() % n);
    };
    SchedulerOptions options{.max_batch_tokens = 1 + below(60),
                             .prefill_chunk = 1 + below(40),
                             .max_sequences = 1 + below(12),
                             .max_bypass = below(10)};
    Bench bench(options, 24 + static_cast<std::size_t>(below(60)));
    bench.max_tokens_in_step = options.max_batch_tokens;
    std::map<std::uint64_t, int> wanted;  // live requests and the tokens they want
    int finished = 0;
    for (int i = 0; i < 100000 && finished < 120; ++i) {
      if (bench.last_id < 120 && below(4) == 0) {
        const RequestId id =
            bench.add(static_cast<std::size_t>(1 + below(200)), below(2) == 0 ? "a" : "b");
        wanted[id.value] = static_cast<int>(1 + below(60));
      }
      bench.step();
      for (auto it = wanted.begin(); it != wanted.end();) {
        const RequestId id{it->first};
        if (below(40) == 0) bench.scheduler.set_reader_full(id, true);
        if (below(10) == 0) bench.scheduler.set_reader_full(id, false);
        if (bench.generated[id.value] >= it->second || below(500) == 0) {
          bench.scheduler.remove(id);
          ++finished;
          it = wanted.erase(it);
        } else {
          ++it;
        }
      }
    }
    EXPECT_EQ(finished, 120) << "seed " << seed;
    EXPECT_EQ(bench.pool.used_bytes(), 0u);
  }
}

}  // namespace
}  // namespace flotilla::engine
