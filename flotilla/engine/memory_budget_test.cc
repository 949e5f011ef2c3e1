#include "flotilla/engine/memory_budget.h"

#include <gtest/gtest.h>

#include <optional>

namespace flotilla::engine {
namespace {

TEST(MemoryBudget, RefusesWithBothNumbers) {
  MemoryBudget budget(1000);
  const auto first = budget.grant("a", 700);
  ASSERT_TRUE(first.ok());
  const auto second = budget.grant("b", 400);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(second.error().message,
            "model 'b' needs 400 bytes of memory, 300 of 1000 bytes are free");
  EXPECT_EQ(budget.granted_bytes(), 700u);
}

TEST(MemoryBudget, AGrantComesBackWhenItGoes) {
  std::optional<MemoryBudget> budget(1000);
  {
    auto grant = budget->grant("a", 600);
    MemoryGrant moved = std::move(*grant);
    EXPECT_EQ(moved.extend(1000, 0), 400u);
    EXPECT_EQ(moved.bytes(), 1000u);
    EXPECT_EQ(budget->free_bytes(), 0u);
  }
  EXPECT_EQ(budget->free_bytes(), 1000u);
  auto survivor = budget->grant("a", 10);
  budget.reset();  // the grant goes last
}

TEST(MemoryBudget, TheFirstModelLeavesRoomForThoseExpected) {
  MemoryBudget budget(10'000);
  budget.expect("a", 1000);
  budget.expect("b", 4000);
  auto a = budget.grant("a", 1000);
  EXPECT_EQ(a->extend(100'000, 0), 2500u);  // half of what both leave
  auto b = budget.grant("b", 4000);
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(b->extend(100'000, 0), 2500u);
  EXPECT_EQ(budget.free_bytes(), 0u);
  a = MemoryGrant();  // unloaded: expected again
  EXPECT_EQ(budget.free_bytes(), 3500u);
}

TEST(MemoryBudget, AModelGetsItsLeastBeforeOthersAreThoughtOf) {
  MemoryBudget budget(1000);
  budget.expect("a", 100);
  budget.expect("b", 800);
  auto a = budget.grant("a", 100);
  EXPECT_EQ(a->extend(500, 300), 300u);
  auto c = budget.grant("c", 500);
  EXPECT_EQ(c->extend(500, 300), 100u);  // no more than there is
}

}  // namespace
}  // namespace flotilla::engine
