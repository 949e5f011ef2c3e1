#include "flotilla/provider/backoff.h"

#include <gtest/gtest.h>

#include <set>

namespace flotilla::provider {
namespace {

using namespace std::chrono_literals;

TEST(Backoff, DoublesUpToTheLimitWithHalfTheWindowRandom) {
  Backoff backoff({}, 1);
  const std::int64_t windows[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000};
  for (const std::int64_t window : windows) {
    const auto wait = backoff.next(0ms).count();
    EXPECT_GE(wait, window / 2);
    EXPECT_LE(wait, window);
  }
}

TEST(Backoff, AShortConnectionDoesNotResetTheWindowAStableOneDoes) {
  Backoff backoff({}, 2);
  for (int i = 0; i < 6; ++i) backoff.next(0ms);
  EXPECT_GE(backoff.next(5'000ms), 15'000ms);
  const auto after_stable = backoff.next(40'000ms);
  EXPECT_GE(after_stable, 500ms);
  EXPECT_LE(after_stable, 5'000ms);
  EXPECT_LE(backoff.next(0ms), 2'000ms);
}

// All nodes lose a coordinator at once: their dials must not come together.
TEST(Backoff, SpreadsAFleetAfterARestart) {
  std::set<std::int64_t> tenths;
  for (std::uint64_t node = 0; node < 300; ++node) {
    Backoff backoff({}, node);
    tenths.insert(backoff.next(3'600'000ms).count() / 100);
  }
  EXPECT_GE(tenths.size(), 40u);
}

}  // namespace
}  // namespace flotilla::provider
