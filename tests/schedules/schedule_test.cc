#include "schedule.h"

#include <gtest/gtest.h>

#include "shrink.h"

namespace flotilla::schedules {
namespace {

const Limits kLimits{.vocab_size = 512, .context_length = 4096, .num_variants = 4, .num_light = 2};

TEST(Schedule, IsTheSameForTheSameSeedAndAnotherForAnother) {
  EXPECT_EQ(to_text(make_schedule(1, 7, kLimits)), to_text(make_schedule(1, 7, kLimits)));
  EXPECT_NE(to_text(make_schedule(1, 7, kLimits)), to_text(make_schedule(1, 8, kLimits)));
  EXPECT_NE(to_text(make_schedule(1, 7, kLimits)), to_text(make_schedule(2, 7, kLimits)));
}

TEST(Schedule, SurvivesItsTextForm) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::string text = to_text(make_schedule(3, i, kLimits));
    const auto read = schedule_from_text(text);
    ASSERT_TRUE(read.ok()) << read.error().message << " in " << text;
    EXPECT_EQ(to_text(*read), text);
  }
}

TEST(Schedule, TextWithUnknownOrMalformedMembersIsRefused) {
  for (const char* text :
       {"", "[]", "{}", R"({"arrivals":[{"stp":1}]})", R"({"arrivals":[],"x":1})",
        R"({"arrivals":[{"step":"one"}]})", R"({"arrivals":[3]})"}) {
    EXPECT_FALSE(schedule_from_text(text).ok()) << text;
  }
}

TEST(Schedule, PromptsShareThePrefixThatTheyName) {
  const RequestSpec a{.prefix = 2, .prefix_tokens = 50, .tail = 1, .tail_tokens = 9};
  const RequestSpec b{.prefix = 2, .prefix_tokens = 30, .tail = 2, .tail_tokens = 9};
  const auto first = make_job(a, 512)->prompt_ids, second = make_job(b, 512)->prompt_ids;
  EXPECT_EQ(first.size(), 59u);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 30, second.begin()));
  EXPECT_NE(first[30], second[30]);
}

// Every kind of event occurs in a short run, or the check would prove less than it says.
TEST(Schedule, TwoHundredHoldEveryKindOfEvent) {
  int cancels = 0, pauses = 0, resumes = 0, faults = 0, forced = 0, tight = 0, caches = 0,
      longs = 0, failing = 0, sampled = 0, shared = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Schedule s = make_schedule(1, i, kLimits);
    forced += s.force_preemption_every > 0;
    tight += s.spare_memory_percent < 50 && s.arrivals.size() > 2;
    caches += s.prefix_cache_percent > 0;
    failing += s.failing_step >= 0;
    for (const Arrival& a : s.arrivals) {
      cancels += a.cancel_step >= 0;
      pauses += a.pause_every > 0;
      resumes += a.resume_at > 0;
      faults += a.fault != Fault::kNone;
      longs += a.request.num_prompt() > 500;
      sampled += a.request.sampling.temperature > 0;
      shared += a.request.prefix_tokens >= 32;
      EXPECT_LE(a.request.num_prompt() + a.request.max_tokens, kLimits.context_length);
      EXPECT_GE(a.request.tail_tokens, 1);
      EXPECT_GE(a.request.max_tokens, 1);
    }
  }
  for (const int count :
       {cancels, pauses, resumes, faults, forced, tight, caches, longs, failing, sampled, shared}) {
    EXPECT_GE(count, 3);
  }
}

TEST(Shrinker, FindsTheSmallestScheduleThatFails) {
  // Fails when a prompt of at least 9 tokens meets chunks of at most 33 and another request.
  const auto fails = [](const Schedule& s) {
    bool big = false;
    for (const Arrival& a : s.arrivals) big = big || a.request.num_prompt() >= 9;
    return big && s.arrivals.size() >= 2 && s.prefill_chunk <= 33;
  };
  int shrunk = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Schedule failing = make_schedule(1, i, kLimits);
    if (shrunk == 6 || !fails(failing)) continue;
    ++shrunk;
    Shrinker shrinker(failing);
    int tries = 0;
    while (const auto candidate = shrinker.next()) {
      ASSERT_LT(++tries, 3000);
      shrinker.report(fails(*candidate));
    }
    const Schedule& best = shrinker.best();
    ASSERT_TRUE(fails(best));
    ASSERT_EQ(best.arrivals.size(), 2u);
    EXPECT_EQ(best.variant, 0u);
    EXPECT_EQ(best.force_preemption_every, 0);
    const std::int64_t a = best.arrivals[0].request.num_prompt();
    const std::int64_t b = best.arrivals[1].request.num_prompt();
    EXPECT_EQ(std::max(a, b), 9);
    EXPECT_EQ(std::min(a, b), 1);
    for (const Arrival& arrival : best.arrivals) {
      EXPECT_EQ(arrival.request.max_tokens, 1);
      EXPECT_EQ(arrival.fault, Fault::kNone);
      EXPECT_EQ(arrival.cancel_step, -1);
    }
  }
  EXPECT_GE(shrunk, 5);
}

}  // namespace
}  // namespace flotilla::schedules
