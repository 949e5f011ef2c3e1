#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "flotilla/sampling/exact_math.h"
#include "flotilla/sampling/philox.h"

namespace flotilla::sampling {
namespace {

using Block = std::array<std::uint32_t, 4>;

TEST(Philox, EqualsThePublishedVectors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (Block{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, UniformNumbersDependOnSeedChoiceAndIndex) {
  EXPECT_EQ(uniform(0, 0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
  EXPECT_NE(uniform(7, 0, 0), uniform(7, 1, 0));
  EXPECT_NE(uniform(7, 0, 0), uniform(7, 0, 1));
  EXPECT_NE(uniform(7, 0, 0), uniform(8, 0, 0));
  EXPECT_NE(uniform(7, 0, 0), uniform(7ull << 32, 0, 0));
  double sum = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double u = uniform(42, 0, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);
}

TEST(ExactMath, ExpIsCloseToTheTruth) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const double x =
        -700.0 * std::generate_canonical<double, 53>(random) * (i % 2 == 0 ? 1.0 : 0.01);
    const double truth = std::exp(x);
    ASSERT_NEAR(exact_exp(x) / truth, 1.0, 1e-15) << x;
  }
  EXPECT_EQ(exact_exp(0.0), 1.0);
  EXPECT_EQ(exact_exp(-701), 0.0);
  EXPECT_EQ(exact_exp(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST(ExactMath, LogIsCloseToTheTruth) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200000; ++i) {
    const double x = std::exp(20.0 * std::generate_canonical<double, 53>(random));
    ASSERT_NEAR(exact_log(x), std::log(x), 4e-15) << x;
  }
  EXPECT_EQ(exact_log(1.0), 0.0);
}

// The bits themselves: another machine or compiler must give the same.
TEST(ExactMath, BitsAreFixed) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(exact_exp(-1.0)), 0x3fd78b56362cef38ull);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(exact_exp(-17.25)), 0x3e614f49dbc5078cull);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(exact_log(10.0)), 0x40026bb1bbb55516ull);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(exact_log(262144.0)), 0x4028f40b5ed9812dull);
}

}  // namespace
}  // namespace flotilla::sampling
