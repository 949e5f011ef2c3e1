#include "flotilla/state/page_range.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace flotilla::state {
namespace {

constexpr std::size_t kPage = std::size_t{64} << 10;

bool is_zero(const float* page, std::size_t bytes) {
  return std::all_of(page, page + bytes / sizeof(float), [](float v) { return v == 0; });
}

// How many of the 4 KiB of `page` are in memory.
std::size_t num_resident(float* page, std::size_t bytes) {
  std::vector<unsigned char> flags(bytes / 4096);
  if (::mincore(page, bytes, flags.data()) != 0) return 0;
  return static_cast<std::size_t>(
      std::count_if(flags.begin(), flags.end(), [](unsigned char f) { return (f & 1) != 0; }));
}

TEST(PageRange, PagesAreZeroAlignedAndApart) {
  for (const std::size_t bytes : {std::size_t{256}, kPage, std::size_t{3} << 20}) {
    PageRange memory(bytes, 8 * bytes);
    std::vector<float*> pages;
    for (int i = 0; i < 8; ++i) {
      pages.push_back(memory.take());
      ASSERT_NE(pages.back(), nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pages.back()) % 64, 0u);
      EXPECT_TRUE(is_zero(pages.back(), bytes));
      std::fill(pages.back(), pages.back() + bytes / sizeof(float), static_cast<float>(i + 1));
    }
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(pages[static_cast<std::size_t>(i)][bytes / sizeof(float) - 1],
                static_cast<float>(i + 1));
      memory.give_back(pages[static_cast<std::size_t>(i)]);
    }
  }
}

TEST(PageRange, WhatIsGivenBackLeavesTheProcessAndComesBackEmpty) {
  PageRange memory(kPage, 64 * kPage);
  if (!memory.has_range()) GTEST_SKIP() << "pages are allocations here";
  std::vector<float*> pages;
  for (int i = 0; i < 40; ++i) {
    pages.push_back(memory.take());
    std::fill(pages.back(), pages.back() + kPage / sizeof(float), 7.0f);
  }
  EXPECT_EQ(num_resident(pages[20], kPage), kPage / 4096);
  memory.give_back(pages[20]);
  memory.give_back(pages[3]);
  EXPECT_EQ(num_resident(pages[20], kPage), 0u);
  EXPECT_EQ(num_resident(pages[21], kPage), kPage / 4096);
  float* again = memory.take();
  EXPECT_EQ(again, pages[3]);  // the lowest
  EXPECT_TRUE(is_zero(again, kPage));
  EXPECT_EQ(memory.take(), pages[20]);
  for (float* page : pages) memory.give_back(page);
}

TEST(PageRange, ARangeThatTheSystemRefusesIsNoFailure) {
  PageRange memory(kPage, ~std::size_t{0} / 4);
  EXPECT_FALSE(memory.has_range());
  float* page = memory.take();
  ASSERT_NE(page, nullptr);
  EXPECT_TRUE(is_zero(page, kPage));
  memory.give_back(page);
}

// Where the system gives huge pages on request, it is asked.
TEST(PageRange, AsksForHugePages) {
  PageRange memory(kPage, std::size_t{16} << 20);
  float* page = memory.take();
  const auto at = reinterpret_cast<std::uintptr_t>(page);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  bool asked = false;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t dash = line.find('-');
    if (dash != std::string::npos && dash <= 16 && line.find(' ') > dash) {
      const std::uintptr_t begin = std::stoull(line.substr(0, dash), nullptr, 16);
      const std::uintptr_t end = std::stoull(line.substr(dash + 1), nullptr, 16);
      inside = begin <= at && at < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      asked = line.find(" hg") != std::string::npos;
    }
  }
  const bool has_range = memory.has_range();
  memory.give_back(page);
  std::ifstream enabled("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(enabled, modes);
  if (!has_range || modes.empty() || modes.find("[never]") != std::string::npos) {
    GTEST_SKIP() << "no huge pages here";
  }
  EXPECT_TRUE(asked);
}

}  // namespace
}  // namespace flotilla::state
