#include "flotilla/provider/recent_ends.h"

#include <gtest/gtest.h>

namespace flotilla::provider {
namespace {

protocol::AttemptEnd end(const std::string& job, std::uint32_t attempt, std::uint64_t end_token) {
  return {.job = job, .attempt = attempt, .end_token = end_token};
}

TEST(RecentEnds, KeepsEveryAttemptOfAJob) {
  RecentEnds ends(10);
  ends.note(end("a", 1, 5));
  ends.note(end("b", 1, 6));
  ends.note(end("a", 2, 9));
  ends.note(end("a", 1, 7));  // told again
  const auto of_a = ends.of({"a", "unknown"});
  ASSERT_EQ(of_a.size(), 2u);
  EXPECT_EQ(of_a[0].end_token, 7u);
  EXPECT_EQ(of_a[1].end_token, 9u);
}

TEST(RecentEnds, ForgetsTheOldestBeyondItsCapacity) {
  RecentEnds ends(3);
  ends.note(end("a", 1, 1));
  ends.note(end("a", 2, 2));
  ends.note(end("b", 1, 3));
  ends.note(end("c", 1, 4));
  ASSERT_EQ(ends.of({"a"}).size(), 1u);
  EXPECT_EQ(ends.of({"a"})[0].attempt, 2u);
  for (std::uint32_t i = 0; i < 100; ++i) ends.note(end("d" + std::to_string(i), 1, 1));
  EXPECT_TRUE(ends.of({"a", "b", "c", "d96"}).empty());
  EXPECT_EQ(ends.of({"d97", "d98", "d99"}).size(), 3u);
}

}  // namespace
}  // namespace flotilla::provider
