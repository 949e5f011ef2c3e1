#include "flotilla/backend/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace flotilla::backend {
namespace {

TEST(ThreadPool, RunsEveryItemOnceAtEveryNumberOfThreads) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const int items : {0, 1, 2, 5, 64, 1000}) {
      std::vector<int> seen(static_cast<std::size_t>(items), 0);
      pool.run(items, [&](int i, int thread) {
        ++seen[static_cast<std::size_t>(i)];
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
      });
      EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), items);
      for (const int n : seen) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, GivesEachThreadItsOwnIndexWhileBodiesRun) {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads);
  std::vector<int> counts(kThreads, 0);  // not atomic: two bodies with one index would be a race
  for (int round = 0; round < 200; ++round) {
    pool.run(50, [&](int, int thread) { ++counts[static_cast<std::size_t>(thread)]; });
  }
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), 200 * 50);
}

TEST(ThreadPool, WritesOfOneRunAreSeenByTheNextOnAnyThread) {
  ThreadPool pool(3);
  std::vector<int> data(300, 0);
  for (int round = 1; round <= 500; ++round) {
    pool.run(300, [&](int i, int) { data[static_cast<std::size_t>(i)] += 1; });
    pool.run(300, [&](int i, int) {
      const auto mirrored = static_cast<std::size_t>(299 - i);
      ASSERT_EQ(data[mirrored], round);
    });
  }
}

TEST(ThreadPool, IdleWorkersSleep) {
  ThreadPool pool(4);
  pool.run(8, [](int, int) {});
  const auto cpu_seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
  nanosleep(&pause, nullptr);  // past the look-out for more work
  const double before = cpu_seconds();
  nanosleep(&pause, nullptr);
  nanosleep(&pause, nullptr);
  EXPECT_LT(cpu_seconds() - before, 0.01);
  int sum = 0;
  pool.run(1, [&](int, int) { ++sum; });
  EXPECT_EQ(sum, 1);
}

int num_allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

TEST(ThreadPool, PinnedWorkersStayOnCoresOfTheirOwn) {
  const int cores = num_allowed_cores(), threads = cores + 2;
  for (const bool pin : {false, true}) {
    ThreadPool pool(threads, pin);
    std::vector<int> allowed(static_cast<std::size_t>(threads), 0);
    std::atomic<int> started{0};
    pool.run(threads, [&](int, int thread) {
      allowed[static_cast<std::size_t>(thread)] = num_allowed_cores();
      started.fetch_add(1);
      while (started.load() < threads) sched_yield();  // so that every thread gets one item
    });
    EXPECT_EQ(allowed[0], cores) << "the caller is not pinned";
    for (int t = 1; t < threads; ++t) {
      const bool has_core = t < cores;  // one core is left to the caller
      EXPECT_EQ(allowed[static_cast<std::size_t>(t)], pin && has_core ? 1 : cores) << t;
    }
  }
  EXPECT_EQ(num_allowed_cores(), cores);
}

TEST(ThreadPool, CountsAtLeastOneCore) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace flotilla::backend
