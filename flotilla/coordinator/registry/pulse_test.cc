#include "flotilla/coordinator/registry/pulse.h"

#include <gtest/gtest.h>

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;

TEST(Pulse, ASecondWithoutASignIsTooLong) {
  Pulse pulse;
  Clock::Instant now{};
  pulse.start(now);
  for (int i = 0; i < 20; ++i) pulse.note(now += 100ms);
  EXPECT_FALSE(pulse.overdue(now + 999ms));
  EXPECT_TRUE(pulse.overdue(now + 1000ms));
}

TEST(Pulse, ASlowRhythmGetsFiveTimesItsMedian) {
  Pulse pulse;
  Clock::Instant now{};
  pulse.start(now);
  for (int i = 0; i < 20; ++i) pulse.note(now += 600ms);
  EXPECT_FALSE(pulse.overdue(now + 2999ms));
  EXPECT_TRUE(pulse.overdue(now + 3000ms));
  // One long gap is an outlier.
  pulse.note(now += 9s);
  EXPECT_TRUE(pulse.overdue(now + 3000ms));
}

TEST(Pulse, FramesOfOneBurstAreOneSign) {
  Pulse pulse;
  Clock::Instant now{};
  pulse.start(now);
  for (int i = 0; i < 20; ++i) {
    for (int frame = 0; frame < 50; ++frame) pulse.note(now);
    now += 500ms;
  }
  pulse.note(now);
  EXPECT_FALSE(pulse.overdue(now + 2400ms));
  EXPECT_TRUE(pulse.overdue(now + 2500ms));
}

TEST(Pulse, TheFirstSignMayTakeTwoSeconds) {
  Pulse pulse;
  const Clock::Instant now{};
  pulse.start(now);
  EXPECT_FALSE(pulse.overdue(now + 1999ms));
  EXPECT_TRUE(pulse.overdue(now + 2000ms));
}

TEST(Pulse, NothingIsPromisedForEver) {
  Pulse pulse;
  Clock::Instant now{};
  pulse.start(now);
  for (int i = 0; i < 20; ++i) pulse.note(now += 60s);
  EXPECT_TRUE(pulse.overdue(now + 10s));
}

}  // namespace
}  // namespace flotilla::coordinator
