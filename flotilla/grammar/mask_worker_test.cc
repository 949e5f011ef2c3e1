#include "flotilla/grammar/mask_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <thread>

#include "flotilla/grammar/testing.h"

namespace flotilla::grammar {
namespace {

std::shared_ptr<ConstrainedOutput> output_of(const std::shared_ptr<CompiledGrammar>& grammar) {
  auto plan = std::make_shared<ConstraintPlan>();
  plan->grammar = grammar;
  return std::make_shared<ConstrainedOutput>(OutputConstraint(plan, 500, {kEndToken}));
}

std::shared_ptr<CompiledGrammar> letters() {
  return compiled(text_constraint(Constraint::Kind::kRegex, "[a-z]{40}x?"));
}

TEST(YieldingMutex, LetsShortUsesPassALongOne) {
  YieldingMutex mutex;
  int passed = 0;  // guarded by mutex
  mutex.lock();
  std::thread other([&] {
    for (int i = 0; i < 3; ++i) {
      const std::lock_guard lock(mutex);
      ++passed;
    }
  });
  while (passed < 3) mutex.let_pass();  // would never end if it passed nobody
  mutex.unlock();
  other.join();
}

TEST(ConstrainedOutput, WhatIsColdIsLeftToTheWorker) {
  const auto output = output_of(letters());
  output->want(100, false);
  EXPECT_FALSE(output->take());  // nothing is known yet: the vocabulary would be walked
  EXPECT_TRUE(output->compute());
  EXPECT_FALSE(output->compute());
  ASSERT_TRUE(output->take());
  ASSERT_TRUE(output->status().ok());
  EXPECT_NE(output->mask()['a' / 32] >> ('a' % 32) & 1u, 0u);
  EXPECT_FALSE(output->take());
}

TEST(ConstrainedOutput, WhatIsKnownIsComputedAtOnce) {
  const auto grammar = letters();
  const auto first = output_of(grammar);
  first->want(100, false);
  ASSERT_TRUE(first->compute());
  const auto second = output_of(grammar);
  second->want(100, false);
  ASSERT_TRUE(second->take());
  EXPECT_TRUE(std::ranges::equal(first->mask(), second->mask()));
}

TEST(ConstrainedOutput, QuickMasksAreTheSame) {
  const auto grammar = compiled(schema_constraint(
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},
          "list":{"type":"array","items":{"type":["integer","null"]}}},"required":["name"]})"));
  std::mt19937 random(3);
  for (int round = 0; round < 40; ++round) {
    Matcher matcher(grammar);
    std::vector<std::uint32_t> slow(grammar->vocabulary().num_words()), quick(slow.size());
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t budget = random() % 3 == 0 ? matcher.distance() + random() % 5 : 1000;
      const auto known = matcher.try_fill_mask(quick, budget);
      ASSERT_TRUE(known.ok());
      ASSERT_TRUE(matcher.fill_mask(slow, budget).ok());
      if (*known) {
        ASSERT_EQ(quick, slow);
      }
      std::vector<TokenId> legal;
      for (TokenId id = 0; id < 400; ++id) {
        if (static_cast<std::size_t>(id) < slow.size() * 32 && is_set(slow, id))
          legal.push_back(id);
      }
      if (legal.empty()) break;
      ASSERT_TRUE(matcher.accept(legal[random() % legal.size()]));
    }
  }
}

TEST(MaskWorker, ComputesEverythingThatIsPosted) {
  std::mutex mutex;
  std::condition_variable changed;
  int done = 0;  // guarded by mutex
  MaskWorker worker([&] {
    const std::lock_guard lock(mutex);
    ++done;
    changed.notify_one();
  });
  std::vector<std::shared_ptr<ConstrainedOutput>> outputs;
  for (int i = 0; i < 20; ++i) {
    outputs.push_back(output_of(letters()));
    outputs.back()->want(100, false);
    worker.post(outputs.back());
    worker.post(outputs.back());
  }
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return done == 20; }));
  for (const auto& output : outputs) EXPECT_TRUE(output->is_done() && output->take());
}

TEST(MaskWorker, OutputsMayGoWhileTheyWait) {
  for (int round = 0; round < 20; ++round) {
    MaskWorker worker([] {});
    for (int i = 0; i < 5; ++i) {
      auto output = output_of(letters());
      output->want(100, false);
      worker.post(std::move(output));
    }
  }
}

// While one thread walks cold masks, another follows an output of the same grammar.
TEST(MaskWorker, OthersFollowTheirOutputsMeanwhile) {
  const auto grammar = compiled(schema_constraint(
      R"({"type":"array","items":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}}}})"));
  std::atomic<bool> stop{false};
  std::thread walker([&] {
    std::vector<std::uint32_t> mask(grammar->vocabulary().num_words());
    for (std::uint64_t budget = 1; !stop; budget = budget % 40 + 1) {
      Matcher matcher(grammar);
      ASSERT_TRUE(matcher.accept_bytes("[{\"a\":\""));
      ASSERT_TRUE(matcher.fill_mask(mask, budget).ok());
    }
  });
  for (int i = 0; i < 300; ++i) {
    Matcher matcher(grammar);
    ASSERT_TRUE(matcher.accept_bytes(R"([{"a":"x","b":-1.5},{"b":2},{"a":"}]"}])"));
    ASSERT_TRUE(matcher.is_accepting());
  }
  stop = true;
  walker.join();
}

}  // namespace
}  // namespace flotilla::grammar
