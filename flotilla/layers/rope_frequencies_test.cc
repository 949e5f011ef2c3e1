#include "flotilla/layers/rope_frequencies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace flotilla::layers {
namespace {

TEST(RopeFrequencies, DefaultCoversEveryPair) {
  const auto f = rope_frequencies(256, 1e4);
  ASSERT_EQ(f.size(), 128u);
  EXPECT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[1], std::pow(1e4f, -2.0f / 256));
  EXPECT_FLOAT_EQ(f[127], std::pow(1e4f, -254.0f / 256));
}

// 64 live pairs with the full head in the exponent, not 128 as an ordinary partial rotation would
// have it.
TEST(RopeFrequencies, ProportionalRotatesAQuarterWithTheExponentsOfTheFullHead) {
  const auto f = proportional_rope_frequencies(512, 1e6, 0.25, 1.0);
  ASSERT_EQ(f.size(), 256u);
  EXPECT_EQ(std::count(f.begin(), f.end(), 0.0f), 192);
  EXPECT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[63], std::pow(1e6f, -126.0f / 512));
  EXPECT_EQ(f[64], 0.0f);
}

TEST(RopeFrequencies, FactorDividesEveryFrequency) {
  const auto plain = proportional_rope_frequencies(64, 1e6, 0.25, 1.0);
  const auto slow = proportional_rope_frequencies(64, 1e6, 0.25, 8.0);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(slow[i] * 8, plain[i]);
}

}  // namespace
}  // namespace flotilla::layers
