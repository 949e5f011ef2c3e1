#include "flotilla/state/page_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "flotilla/state/page_pool.h"

namespace flotilla::state {
namespace {

constexpr std::size_t kLarge = 512, kSmall = 256, kOdd = 192;

// Host memory in the place of a device's; counts what it is asked for.
class TestArena final : public PageArena {
 public:
  TestArena(std::vector<std::byte>& memory, std::vector<std::size_t> sizes)
      : PageArena(memory.data(), memory.size(), std::move(sizes)) {}
  void copy(Place& to, const Place& from) override { std::memcpy(to.data, from.data, from.bytes); }
  void copy_positions(const tensor::KvGeometry&, Place&, const Place&, std::int64_t) override {}
  int num_wipes = 0;

 protected:
  void wipe(std::span<std::byte* const> places, std::size_t bytes) override {
    ++num_wipes;
    for (std::byte* place : places) std::memset(place, 0, bytes);
  }
  void move(std::byte* to, const std::byte* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
};

bool all_equal(const PageRef& page, std::byte value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(page.data());
  return std::all_of(bytes, bytes + page.bytes(), [=](std::byte b) { return b == value; });
}

TEST(PageArena, ARegionForSomeBytesHasThem) {
  const std::vector<std::size_t> sizes = {kLarge, kSmall, kOdd};
  for (const std::size_t usable : {std::size_t{1}, std::size_t{100'000}, std::size_t{1} << 30}) {
    const std::size_t region = PageArena::region_for(usable, sizes);
    EXPECT_GE(PageArena::usable_bytes(region, sizes), usable);
    EXPECT_LT(PageArena::usable_bytes(region - PageArena::kPlacesPerSlab * kLarge, sizes), usable);
  }
  EXPECT_EQ(PageArena::usable_bytes(1000, sizes), 0u);
}

TEST(PageArena, WipesWhatWasFreedBeforeAnybodyGetsIt) {
  std::vector<std::byte> memory(PageArena::region_for(64 * kLarge, std::vector{kLarge}));
  auto arena = std::make_shared<TestArena>(memory, std::vector{kLarge});
  PagePool pool(arena->usable_bytes(), arena);
  for (int round = 0; round < 3; ++round) {
    std::vector<PageRef> pages;
    for (int i = 0; i < 64; ++i) {
      auto page = pool.acquire(kLarge);
      ASSERT_TRUE(page.ok());
      EXPECT_TRUE(all_equal(*page, std::byte{0}));
      std::memset(page->data(), 7, kLarge);
      pages.push_back(std::move(*page));
    }
    ASSERT_FALSE(pool.acquire(kLarge).ok());
  }
  pool.release_unused();
  EXPECT_TRUE(
      std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(arena->num_wipes, 3);  // once for many pages
}

// Whatever is held, a page that fits by the count of bytes is there, and what others hold survives
// its moves.
TEST(PageArena, AnyMixtureOfSizesFillsItsBytes) {
  const std::vector<std::size_t> sizes = {kLarge, kSmall, kOdd};
  std::vector<std::byte> memory(PageArena::region_for(6 * 64 * kLarge, sizes));
  auto arena = std::make_shared<TestArena>(memory, sizes);
  PagePool pool(arena->usable_bytes(), arena);
  std::mt19937 random(17);
  std::vector<std::pair<PageRef, std::byte>> held;
  std::uint8_t mark = 0;
  for (int phase = 0; phase < 60; ++phase) {
    const std::size_t size = sizes[random() % sizes.size()];
    while (pool.free_bytes() >= size) {
      auto page = pool.acquire(size);
      ASSERT_TRUE(page.ok()) << page.error().message;
      ASSERT_TRUE(all_equal(*page, std::byte{0}));
      mark = static_cast<std::uint8_t>(mark % 255 + 1);
      std::memset(page->data(), mark, size);
      held.emplace_back(std::move(*page), std::byte{mark});
    }
    pool.check_integrity(held.size());
    for (const auto& [page, value] : held) ASSERT_TRUE(all_equal(page, value));
    std::shuffle(held.begin(), held.end(), random);
    held.resize(held.size() * (random() % 4) / 4);
  }
  EXPECT_GT(pool.num_moves(), 0u);
  held.clear();
  pool.check_integrity(0);
}

}  // namespace
}  // namespace flotilla::state
