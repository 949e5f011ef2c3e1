#include "flotilla/coordinator/link/join_limiter.h"

#include <gtest/gtest.h>

#include <string>

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;

int admitted(JoinLimiter& limiter, const std::string& address, int num_tries, Clock::Instant now) {
  int n = 0;
  for (int i = 0; i < num_tries; ++i) {
    n += limiter.admit(address + ":" + std::to_string(5'000 + i), now) ? 1 : 0;
  }
  return n;
}

TEST(JoinLimiter, OneAddressHasItsOwnLimit) {
  JoinLimiter limiter;
  const Clock::Instant now{};
  EXPECT_EQ(admitted(limiter, "10.0.0.1", 1'000, now), 100);
  EXPECT_EQ(admitted(limiter, "10.0.0.1", 1'000, now + 1s), 50);
  EXPECT_EQ(admitted(limiter, "10.0.0.2", 10, now + 1s), 10);
  EXPECT_EQ(admitted(limiter, "[::1]", 10, now + 1s), 10);
}

TEST(JoinLimiter, AllTogetherHaveOneToo) {
  JoinLimiter limiter;
  const Clock::Instant now{};
  int n = 0;
  for (int i = 0; i < 2'000; ++i) n += admitted(limiter, "10.1." + std::to_string(i), 1, now);
  EXPECT_EQ(n, 800);
}

TEST(JoinLimiter, ManyAddressesCostBoundedMemoryAndTheRestIsPutOff) {
  JoinLimiter limiter({.per_second = 1e6, .burst = 1e6, .max_addresses = 10});
  const Clock::Instant now{};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(admitted(limiter, std::to_string(i), 1, now), 1);
  EXPECT_EQ(admitted(limiter, "new", 1, now), 0);
  EXPECT_EQ(admitted(limiter, "new", 1, now + 10s), 1);  // the others are forgotten
}

}  // namespace
}  // namespace flotilla::coordinator
