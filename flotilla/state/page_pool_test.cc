#include "flotilla/state/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>

namespace flotilla::state {
namespace {

constexpr tensor::KvGeometry kSmall{.num_kv_heads = 1, .head_dim = 4};
constexpr tensor::KvGeometry kLarge{.num_kv_heads = 2, .head_dim = 8};

bool all_zero(const float* data, std::size_t count) {
  return std::all_of(data, data + count, [](float v) { return v == 0.0f; });
}

TEST(PagePool, GivesAlignedZeroedPagesUpToItsBudget) {
  PagePool pool(3 * kv_page_bytes(kSmall) + 1);
  std::vector<PageRef> pages;
  for (int i = 0; i < 3; ++i) {
    auto page = pool.acquire(kSmall);
    ASSERT_TRUE(page.ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(page->data()) % 64, 0u);
    EXPECT_TRUE(all_zero(page->data(), kv_page_floats(kSmall)));
    pages.push_back(std::move(*page));
  }
  auto refused = pool.acquire(kSmall);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  pool.check_integrity(3);
  pages.clear();
  pool.check_integrity(0);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(PagePool, WipesPagesAtRelease) {
  PagePool pool(kv_page_bytes(kSmall));
  float* where = nullptr;
  {
    auto page = pool.acquire(kSmall);
    where = page->data();
    std::fill_n(where, kv_page_floats(kSmall), 7.0f);
  }
  // The page is still the pool's, free: its memory may be looked at here, and holds nothing.
  EXPECT_TRUE(all_zero(where, kv_page_floats(kSmall)));
  auto again = pool.acquire(kSmall);
  EXPECT_EQ(again->data(), where);
  EXPECT_TRUE(all_zero(again->data(), kv_page_floats(kSmall)));
}

TEST(PagePool, FreePagesOfOneSizeMakeRoomForAnother) {
  const std::size_t budget = kv_page_bytes(kLarge);
  PagePool pool(budget);
  {
    std::vector<PageRef> small;
    while (true) {
      auto page = pool.acquire(kSmall);
      if (!page.ok()) break;
      small.push_back(std::move(*page));
    }
    EXPECT_EQ(small.size(), budget / kv_page_bytes(kSmall));
    EXPECT_FALSE(pool.acquire(kLarge).ok());
  }
  EXPECT_TRUE(pool.acquire(kLarge).ok());
  pool.check_integrity(0);
}

TEST(PagePool, ASharedPageLivesUntilTheLastReference) {
  PagePool pool(kv_page_bytes(kSmall));
  auto page = pool.acquire(kSmall);
  PageRef first = std::move(*page);
  PageRef second = first.share();
  EXPECT_FALSE(first.exclusive());
  second.data()[0] = 3.0f;
  first.reset();
  EXPECT_EQ(second.data()[0], 3.0f);
  EXPECT_TRUE(second.exclusive());
  pool.check_integrity(1);
  second.reset();
  pool.check_integrity(0);
}

TEST(PagePool, BooksAddUpUnderRandomUse) {
  PagePool pool(20 * kv_page_bytes(kLarge));
  std::mt19937 random(3);
  std::vector<PageRef> held;
  std::size_t distinct = 0;
  std::map<const float*, int> refs;
  for (int i = 0; i < 5000; ++i) {
    const auto dice = random() % 5;
    if (dice < 2) {
      if (auto page = pool.acquire(dice == 0 ? kSmall : kLarge); page.ok()) {
        ++distinct;
        ++refs[page->data()];
        held.push_back(std::move(*page));
      }
    } else if (dice == 2 && !held.empty()) {
      held.push_back(held[random() % held.size()].share());
      ++refs[held.back().data()];
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      if (--refs[held.back().data()] == 0) --distinct;
      held.pop_back();
    }
    pool.check_integrity(distinct);
  }
}

TEST(PagePoolDeathTest, ALeakIsFound) {
  PagePool pool(kv_page_bytes(kSmall));
  auto page = pool.acquire(kSmall);
  EXPECT_DEATH(pool.check_integrity(0), "pages leaked: 1 in use, 0 have a holder");
}

}  // namespace
}  // namespace flotilla::state
