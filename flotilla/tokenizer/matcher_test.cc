#include "flotilla/tokenizer/matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "flotilla/base/text.h"
#include "flotilla/tokenizer/regex_syntax.h"
#include "flotilla/tokenizer/test_files.h"
#include "flotilla/tokenizer/unicode.h"

namespace flotilla::tokenizer {
namespace {

using namespace testing;

std::string cut(const Matcher& matcher, std::string_view text) {
  std::vector<Match> matches;
  MatchBudget budget;
  EXPECT_TRUE(matcher.find_all(text, matches, budget).ok());
  std::string result;
  for (const Match& m : matches) {
    if (m.is_match) result += '[';
    result += text.substr(m.begin, m.end - m.begin);
    if (m.is_match) result += ']';
  }
  return result;
}
std::string cut(const std::string& pattern, std::string_view text) {
  auto matcher = Matcher::generic_regex(pattern);
  EXPECT_TRUE(matcher.ok()) << pattern << ": " << to_string(matcher.error());
  return matcher.ok() ? cut(*matcher, text) : "";
}

TEST(Matcher, LiteralsDoNotOverlap) {
  EXPECT_EQ(cut(Matcher::literal("aa"), "aaaab"), "[aa][aa]b");
  EXPECT_EQ(cut(Matcher::literal("x"), "abc"), "abc");
}

TEST(Matcher, NoEmptyMatchBehindAMatch) {
  EXPECT_EQ(cut("a*", "baac"), "[]b[aa]c[]");
  EXPECT_EQ(cut("", "ab"), "[]a[]b[]");
  EXPECT_EQ(cut("$", "a\n"), "a[]\n[]");
}

TEST(RegexSyntax, WhiteSpaceIsTheUnicodeProperty) {
  // U+180E is no white space, U+0085 is.
  EXPECT_EQ(cut("\\s+", "a\xC2\x85\xE3\x80\x80 b\xE1\xA0\x8E"),
            "a[\xC2\x85\xE3\x80\x80 ]b\xE1\xA0\x8E");
  EXPECT_EQ(cut("[^\\S\\n]", "\t\n\xE2\x80\xA8"), "[\t]\n[\xE2\x80\xA8]");
}

TEST(RegexSyntax, RubyMeaningOfConstructs) {
  EXPECT_EQ(cut("a{1,2}+b", "aaaaab"), "[aaaaab]");  // repeated, not possessive
  EXPECT_EQ(cut("(?:ab){,2}", "ababab"), "[abab][ab]");
  EXPECT_EQ(cut("a{2}?", "aaa"), "[aa]a[]");
  EXPECT_EQ(cut("a++b", "aab"), "[aab]");
  EXPECT_EQ(cut("(?m:a.b)", "a\nb"), "[a\nb]");
  EXPECT_EQ(cut("a.b", "a\nb a\rb"), "a\nb [a\rb]");
  EXPECT_EQ(cut("^b$", "a\nb\nc"), "a\n[b]\nc");
  EXPECT_EQ(cut("\\h+", "beef-x"), "[beef]-x");
  EXPECT_EQ(cut("\\w+", "a_\xCC\x81\xE2\x93\x90 1"), "[a_\xCC\x81\xE2\x93\x90] [1]");
  EXPECT_EQ(cut("\\w+", "x\xC2\xB2\xE2\x82\x82"),
            "[x\xC2\xB2]\xE2\x82\x82");  // two above, two below
  EXPECT_EQ(cut("\\bx\\b", "x xy x"), "[x] xy [x]");
  EXPECT_EQ(cut("[[:punct:]]+", "a$+.b"), "a[$+.]b");
  EXPECT_EQ(cut("\\p{^L}+|\\u0041", "1A"), "[1][A]");
  EXPECT_EQ(cut("\\Q", "Q"), "[Q]");
  EXPECT_EQ(cut("(?i:'s)", "'S '\xC5\xBF"), "['S] ['\xC5\xBF]");
  EXPECT_EQ(cut("x{", "x{"), "[x{]");
  EXPECT_EQ(cut("(?#note)a", "a"), "[a]");
  EXPECT_EQ(cut("(a)\\1", "aaa"), "[aa]a");
}

TEST(RegexSyntax, WhatHasNoTranslationIsNamed) {
  for (const char* pattern :
       {"[a&&b]", "[a[bc]]", "(*FAIL)", "(?~a)", "\\y", "[\\W]", "(?s)a", "\\xE3", "[", "(?<x",
        "a\\", "[[:nope:]]", "\\p{L", "(", ")", "*", "\\p{NoSuchScript}", "(?<=a+)b"}) {
    auto matcher = Matcher::generic_regex(pattern);
    ASSERT_FALSE(matcher.ok()) << pattern;
    EXPECT_NE(matcher.error().message.find(pattern), std::string::npos) << matcher.error().message;
  }
}

// B57
TEST(Matcher, CostlyPatternsEndInAnErrorThatNamesThem) {
  const std::string pattern = "(a+)+b|(a|aa)+$|x(y*)*z";
  auto matcher = Matcher::generic_regex(pattern);
  ASSERT_TRUE(matcher.ok());
  std::vector<Match> matches;
  MatchBudget budget;
  const auto begin = std::chrono::steady_clock::now();
  const Status status = matcher->find_all(std::string(60, 'a').append("!b"), matches, budget);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(status.error().message.find(pattern), std::string::npos);
}

TEST(Matcher, TheBudgetBoundsTheWholeText) {
  auto matcher = Matcher::generic_regex("a+x|a+y|a+z|b");  // quadratic
  ASSERT_TRUE(matcher.ok());
  std::vector<Match> matches;
  MatchBudget budget{std::chrono::milliseconds(50)};
  const Status status = matcher->find_all(std::string(200000, 'a'), matches, budget);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("time limit"), std::string::npos);
}

TEST(Matcher, LongMatchesDoNotNeedAStack) {
  EXPECT_EQ(cut("(?:a|b)+", std::string(200000, 'a')).size(), 200002u);
}

// utf8proc knows Unicode 15, PCRE2 14: these have a class to the one and none to the other.
bool is_newer(char32_t c) {
  static const Matcher unassigned = [] {
    auto matcher = Matcher::generic_regex("\\p{Cn}");
    return std::move(matcher).value();
  }();
  if (char_class(c) == 0) return false;
  std::string text;
  append_utf8(text, c);
  return cut(unassigned, text).starts_with('[');
}

std::string random_text(std::mt19937& random, std::size_t length) {
  static const std::vector<std::string> kPieces = {"a",
                                                   "B",
                                                   "z",
                                                   "Ab",
                                                   "'s",
                                                   "'S",
                                                   "'\xC5\xBF",
                                                   "'re",
                                                   "'LL",
                                                   "'",
                                                   " ",
                                                   "  ",
                                                   "   ",
                                                   "\n",
                                                   "\r\n",
                                                   "\t",
                                                   "\xC2\xA0",
                                                   "\xE3\x80\x80",
                                                   "1",
                                                   "23",
                                                   "4567",
                                                   "\xD9\xA3",
                                                   "\xE2\x85\xA7",
                                                   "!",
                                                   "...",
                                                   "/",
                                                   "-",
                                                   "(",
                                                   "_",
                                                   "$",
                                                   "+",
                                                   "\xE2\x82\xAC",
                                                   "\xC3\xA9",
                                                   "\xC3\x89",
                                                   "\xC7\x85",
                                                   "e\xCC\x81",
                                                   "\xCC\x81",
                                                   "\xE4\xBD\xA0",
                                                   "\xE9\xBE\xA5",
                                                   "\xE9\xBE\xA6",
                                                   "\xE3\x81\x82",
                                                   "\xE3\x83\xBC",
                                                   "\xE1\x84\x92",
                                                   "\xD0\x96",
                                                   "\xD7\xA9",
                                                   "\xE0\xA4\xA8\xE0\xA5\x8D",
                                                   "\xF0\x9F\x98\x80",
                                                   "\xE2\x80\x8D",
                                                   "\xE2\x80\x8B",
                                                   std::string(1, '\0'),
                                                   "\x01",
                                                   "\xC2\x85",
                                                   "\xCA\xB0",
                                                   "\xE2\x80\xA8"};
  std::string text;
  while (text.size() < length) {
    if (random() % 12 == 0) {
      const auto c = static_cast<char32_t>(random() % 0x110000);
      if (!is_newer(c) && (c < 0xD800 || c > 0xDFFF)) append_utf8(text, c);
    } else {
      text += kPieces[random() % kPieces.size()];
    }
  }
  return text;
}

TEST(Scanners, EqualTheirPatterns) {
  std::mt19937 random(3);
  for (const std::string_view pattern : scanner_patterns()) {
    auto fast = Matcher::regex(std::string(pattern));
    auto slow = Matcher::generic_regex(std::string(pattern));
    ASSERT_TRUE(fast.ok() && slow.ok()) << pattern;
    ASSERT_TRUE(fast->has_scanner());
    ASSERT_FALSE(slow->has_scanner());
    for (int round = 0; round < (kIsSanitized ? 300 : 3000); ++round) {
      const std::string text = random_text(random, 1 + random() % 60);
      ASSERT_EQ(cut(*fast, text), cut(*slow, text)) << pattern;
    }
  }
}

// Every code point alone and between others.
TEST(Scanners, KnowTheClassOfEveryCodePoint) {
  for (const std::string_view pattern : scanner_patterns()) {
    auto fast = Matcher::regex(std::string(pattern));
    auto slow = Matcher::generic_regex(std::string(pattern));
    std::string text;
    for (char32_t c = 0; c < (kIsSanitized ? 0x3000u : 0x20000u); ++c) {
      if ((c >= 0xD800 && c <= 0xDFFF) || is_newer(c)) continue;
      append_utf8(text, c);
      text += c % 3 == 0 ? "a" : c % 3 == 1 ? " " : "1";
    }
    std::vector<Match> a;
    std::vector<Match> b;
    MatchBudget budget{std::chrono::hours(1)};
    ASSERT_TRUE(fast->find_all(text, a, budget).ok());
    ASSERT_TRUE(slow->find_all(text, b, budget).ok());
    ASSERT_EQ(a.size(), b.size()) << pattern;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_TRUE(a[i].begin == b[i].begin && a[i].end == b[i].end &&
                  a[i].is_match == b[i].is_match)
          << pattern << " at " << std::hex
          << static_cast<unsigned>(decode_char(text.data() + a[i].begin).code_point);
    }
  }
}

}  // namespace
}  // namespace flotilla::tokenizer
