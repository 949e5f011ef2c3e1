#include "flotilla/engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace flotilla::engine {
namespace {

std::string run(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& piece : pieces) out += matcher.push(piece);
  if (!matcher.matched()) out += matcher.flush();
  return out;
}

TEST(StopMatcher, FindsAStopStringSpreadOverPieces) {
  StopMatcher matcher({"two three"}, false);
  EXPECT_EQ(matcher.push("one tw"), "one ");
  EXPECT_EQ(matcher.push("o thr"), "");
  EXPECT_EQ(matcher.push("ee four"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.match(), "two three");
  EXPECT_EQ(matcher.push("later"), "");
}

TEST(StopMatcher, FindsAStopStringInsideOnePiece) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.push("a STOP b"), "a ");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcher, TheMatchThatIsCompleteFirstWins) {
  StopMatcher overlapping({"abc", "ab"}, false);
  EXPECT_EQ(run(overlapping, {"xabcd"}), "x");
  EXPECT_EQ(overlapping.match(), "ab");
  StopMatcher listed_late({"three", "one"}, false);
  EXPECT_EQ(run(listed_late, {"zero one two three"}), "zero ");
  EXPECT_EQ(listed_late.match(), "one");
}

TEST(StopMatcher, OfTwoCompleteAtOneByteTheLongerIsCut) {
  StopMatcher matcher({"b", "aab"}, false);
  EXPECT_EQ(run(matcher, {"xaab"}), "x");
  EXPECT_EQ(matcher.match(), "aab");
}

TEST(StopMatcher, ReleasesAFalseStartAtOnce) {
  StopMatcher matcher({"aab"}, false);
  EXPECT_EQ(matcher.push("aa"), "");
  EXPECT_EQ(matcher.push("a"), "a");  // "aa" may still begin a match
  EXPECT_EQ(matcher.push("c"), "aac");
}

TEST(StopMatcher, HoldsNothingThatCannotBecomeAMatch) {
  StopMatcher matcher({"\xF0\x9F\x98\x80!"}, false);
  EXPECT_EQ(matcher.push("so \xF0\x9F\x98\x80"), "so ");
  EXPECT_EQ(matcher.push("?"), "\xF0\x9F\x98\x80?");
  EXPECT_EQ(matcher.push("\xF0\x9F\x98\x80"), "");
  EXPECT_EQ(matcher.push("!x"), "");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcher, CanIncludeTheStopString) {
  StopMatcher matcher({"two three"}, true);
  EXPECT_EQ(run(matcher, {"one tw", "o thr", "ee four"}), "one two three");
}

TEST(StopMatcher, TheCutNeverMatters) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) {
      for (std::size_t i = 0, n = 1 + random() % 4; i < n; ++i)
        stop += static_cast<char>('a' + random() % 2);
    }
    std::string text;
    for (std::size_t i = 0, n = random() % 24; i < n; ++i)
      text += static_cast<char>('a' + random() % 3);
    // The definition, spelled out: the first byte at which any stop is complete.
    std::string expected = text;
    for (std::size_t end = 1; end <= text.size(); ++end) {
      std::size_t longest = 0;
      for (const std::string& stop : stops) {
        if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
      }
      if (longest > 0) {
        expected = text.substr(0, end - longest);
        break;
      }
    }
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = random() % 4;
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    StopMatcher matcher(stops, false);
    ASSERT_EQ(run(matcher, pieces), expected) << text;
  }
}

}  // namespace
}  // namespace flotilla::engine
