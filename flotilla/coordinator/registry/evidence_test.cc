#include "flotilla/coordinator/registry/evidence.h"

#include <gtest/gtest.h>

#include "flotilla/coordinator/registry/first_content.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;

const Clock::Instant kStart = Clock::Instant{} + 1h;

TEST(Evidence, FollowsWithAThirdOfEveryNewValue) {
  Evidence evidence;
  EXPECT_FALSE(evidence.known());
  evidence.add(3, kStart);
  EXPECT_EQ(evidence.value, 3);
  evidence.add(6, kStart + 1s);
  EXPECT_DOUBLE_EQ(evidence.value, 4);
  EXPECT_TRUE(evidence.fresh(kStart + 10min));
  EXPECT_FALSE(evidence.fresh(kStart + 10min + 1s));
}

TEST(PrefillSpeed, EachLengthHasItsOwnSpeed) {
  PrefillSpeed speed;
  EXPECT_FALSE(speed.seconds(100, kStart));
  speed.add(30, 0.3, kStart);    // 10 ms a token
  speed.add(3000, 3.0, kStart);  // 1 ms a token
  EXPECT_DOUBLE_EQ(speed.seconds(20, kStart)->seconds, 0.2);
  EXPECT_DOUBLE_EQ(speed.seconds(2000, kStart)->seconds, 2.0);
  EXPECT_DOUBLE_EQ(speed.seconds(200'000, kStart)->seconds, 200.0);
  EXPECT_DOUBLE_EQ(speed.seconds(100, kStart)->seconds, 1.0);
}

TEST(PrefillSpeed, AFreshNeighbourCountsMoreThanAStaleValue) {
  PrefillSpeed speed;
  speed.add(3000, 30, kStart);
  speed.add(30, 0.03, kStart + 20min);
  EXPECT_DOUBLE_EQ(speed.seconds(3000, kStart + 20min)->seconds, 3);
  EXPECT_EQ(speed.seconds(3000, kStart + 20min)->at, kStart + 20min);
}

class Expecting : public ::testing::Test {
 protected:
  Expecting() {
    slot.offer.loaded = true;
    slot.offer.max_concurrent = 4;
  }
  FirstContent expected(std::int64_t tokens) {
    return expect_first_content(provider, slot, fleet, tokens, now);
  }
  ProviderRecord provider;
  ModelSlot slot;
  Evidence fleet;
  Clock::Instant now = kStart;
};

TEST_F(Expecting, WithoutEvidenceThereAreDefaultsAndTheySayThatTheyAre) {
  const FirstContent time = expected(500);
  EXPECT_DOUBLE_EQ(time.prefill.seconds, 1);
  EXPECT_EQ(time.prefill.source, Source::kDefault);
  EXPECT_EQ(time.network.source, Source::kDefault);
  EXPECT_EQ(time.wait.source, Source::kNothing);
}

TEST_F(Expecting, OwnMeasurementsCountBeforeReportsBeforeTheFleet) {
  fleet.add(0.001, now);
  EXPECT_EQ(expected(1000).prefill.source, Source::kFleet);
  slot.load.prefill_tokens_per_s = 500;
  slot.load_at = now;
  EXPECT_EQ(expected(1000).prefill.source, Source::kReported);
  EXPECT_DOUBLE_EQ(expected(1000).prefill.seconds, 2);
  slot.history.prefill.add(1000, 4, now);
  EXPECT_EQ(expected(1000).prefill.source, Source::kMeasured);
  EXPECT_DOUBLE_EQ(expected(1000).prefill.seconds, 4);
  // A measurement of yesterday counts less than what the node says now.
  now += 24h;
  slot.load_at = now;
  EXPECT_EQ(expected(1000).prefill.source, Source::kReported);
}

TEST_F(Expecting, PromptsAheadAreWaitedFor) {
  slot.load.prefill_tokens_per_s = 1000;
  slot.load_at = now;
  slot.prefill_tokens = 3000;
  EXPECT_DOUBLE_EQ(expected(1000).wait.seconds, 3);
  slot.load.num_waiting = 2;
  slot.load.num_running = 4;
  slot.history.job_seconds.add(8, now);
  EXPECT_DOUBLE_EQ(expected(1000).wait.seconds, 3 + 2 * 8 / 4);
  now += 2min;  // nobody knows whether they still wait
  EXPECT_DOUBLE_EQ(expected(1000).wait.seconds, 3);
}

TEST_F(Expecting, AModelThatIsNotThereIsLoadedFirst) {
  slot.offer.loaded = false;
  slot.offer.resident_bytes = 8'000'000'000;
  EXPECT_DOUBLE_EQ(expected(1).load.seconds, 10);
  slot.history.load_seconds.add(4, now);
  EXPECT_DOUBLE_EQ(expected(1).load.seconds, 4);
  EXPECT_EQ(expected(1).load.source, Source::kMeasured);
}

TEST(TimeStep, IsSteadyAndRises) {
  EXPECT_EQ(time_step(0), 0u);
  EXPECT_EQ(time_step(-1), 0u);
  std::uint32_t last = 0;
  for (double s = 0.001; s < 10'000; s *= 1.5) {
    EXPECT_GE(time_step(s), last);
    last = time_step(s);
  }
  EXPECT_LT(last, 100u);
}

}  // namespace
}  // namespace flotilla::coordinator
