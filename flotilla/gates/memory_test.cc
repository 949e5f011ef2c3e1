#include "flotilla/gates/memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "flotilla/gates/test_models.h"

namespace flotilla::gates {
namespace {

TEST(UsableMemory, IsNineTenthsAndTwoGibibytesLessAtLeast) {
  EXPECT_EQ(usable_memory(0), 0u);
  EXPECT_EQ(usable_memory(kGiB), 0u);
  EXPECT_EQ(usable_memory(8 * kGiB), 6 * kGiB);     // the system's part binds
  EXPECT_EQ(usable_memory(100 * kGiB), 90 * kGiB);  // the share binds
}

TEST(ResidentOverride, OnlyPositiveNumbersCount) {
  EXPECT_EQ(resident_override(16), 16 * kGigabyte);
  EXPECT_EQ(resident_override(0.5), kGigabyte / 2);
  for (const double bad :
       {0.0, -1.0, -0.0, 1e-12, std::nan(""), 1e30, std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(resident_override(bad), std::nullopt) << bad;
  }
}

TEST(NeedToLoad, AModelThatNobodyHasReadIsPadded) {
  const ModelFacts listed = flagship();
  EXPECT_NEAR(static_cast<double>(weights_in_memory(listed.size)) / kGiB, 20.56, 0.01);
  EXPECT_EQ(need_to_load(listed.size),
            weights_in_memory(listed.size) + kDefaultWorkspace + kMinStateBytes);
  const ModelFacts read = flagship(true);
  EXPECT_EQ(weights_in_memory(read.size), read.size.weight_bytes);
}

TEST(NeedToLoad, WhatTheLoaderComputedCountsAsItIs) {
  ModelSize size;
  size.resident_bytes = 5 * kGiB;
  size.listed_bytes = 90 * kGiB;
  EXPECT_EQ(need_to_load(size), 6 * kGiB);
  // Less state is enough where less is ever used.
  const StateCost small{.fixed_bytes = 0, .classes = {{1000, 0}}};
  EXPECT_EQ(need_to_load(size, small, 4096), 5 * kGiB + 4'096'000);
  size.resident_bytes = 1 << 20;
  EXPECT_EQ(need_to_load(size), 2u << 20);
  EXPECT_EQ(need_to_load({}), 0u);
}

TEST(SmallestMachine, TheCatalogsWordCountsBeforeArithmetic) {
  ModelSize size;
  size.listed_bytes = 141 * kGigabyte;
  EXPECT_EQ(smallest_machine(size), 282 * kGiB);
  size.min_memory_bytes = 36 * kGiB;
  EXPECT_LE(smallest_machine(size), 36 * kGiB);
  // A machine of 36 GiB shows a little less than that, one of 32 is another kind of machine.
  EXPECT_LT(smallest_machine(size), 35 * kGiB);
  EXPECT_GT(smallest_machine(size), 32 * kGiB);
  size.min_memory_bytes = 0;
  size.weight_bytes = 141 * kGigabyte;
  EXPECT_EQ(smallest_machine(size), 0u);
}

TEST(StateCost, WindowsStopGrowing) {
  const StateCost cost = flagship().state;
  EXPECT_EQ(cost.bytes(0), 0u);
  EXPECT_EQ(cost.bytes(1), 901'120u);
  EXPECT_EQ(cost.bytes(1024), 1024u * 901'120);
  EXPECT_EQ(cost.bytes(1025), 1024u * 901'120 + 81'920);
}

TEST(StateCost, TheLongestSequenceIsTheInverse) {
  for (const StateCost& cost : {flagship().state, streamed(16).state}) {
    for (std::uint64_t room = 1; room < 200 * kGiB; room = room * 3 + 17) {
      const std::int64_t tokens = tokens_in(cost, room);
      EXPECT_LE(cost.bytes(tokens), room);
      EXPECT_GT(cost.bytes(tokens + 1), room);
    }
  }
  EXPECT_EQ(tokens_in({.fixed_bytes = 10}, 9), 0);
  EXPECT_EQ(tokens_in({.fixed_bytes = 10}, 10), kAnyLength);
}

TEST(StateCost, SumsThatDoNotFitAreTheLargestNumber) {
  const StateCost cost{.fixed_bytes = ~std::uint64_t{0}, .classes = {{~std::uint64_t{0}, 0}}};
  EXPECT_EQ(cost.bytes(1'000'000), ~std::uint64_t{0});
}

}  // namespace
}  // namespace flotilla::gates
