#include "flotilla/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <random>

#include "flotilla/tokenizer/test_files.h"

namespace flotilla::tokenizer {
namespace {

using namespace testing;

TEST(Bpe, MergesByRankThenFromTheLeft) {
  FileParts parts;
  parts.vocab = {"a", "b", "c", "ab", "bc", "aa", "abc"};
  parts.merges = {{"b", "c"}, {"a", "b"}, {"a", "a"}, {"a", "bc"}};
  const auto tokenizer = must_parse(parts);
  EXPECT_EQ(tokens_of(*tokenizer, "abc"), "abc");  // bc first, then a + bc
  EXPECT_EQ(tokens_of(*tokenizer, "aab"), "a|ab");
  EXPECT_EQ(tokens_of(*tokenizer, "aaa"), "aa|a");
}

TEST(Bpe, MergesMayBeStringsOrPairs) {
  const std::string head = R"({"added_tokens":[],"model":{"vocab":{"a":0,"b":1,"ab":2},"merges":)";
  for (const char* merges : {R"([["a","b"]])", R"(["a b"])", R"(["#version: 0.2","a b"])"}) {
    auto tokenizer = Tokenizer::parse(head + merges + "}}");
    ASSERT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
    EXPECT_EQ(tokens_of(**tokenizer, "ab"), "ab");
  }
}

TEST(Bpe, UnknownCharactersFuseOrNot) {
  FileParts parts;
  parts.vocab = {"<unk>", "a"};
  parts.model_settings = R"("unk_token":"<unk>","fuse_unk":true,)";
  EXPECT_EQ(tokens_of(*must_parse(parts), "xxaxyz"), "<unk>|a|<unk>");
  parts.model_settings = R"("unk_token":"<unk>",)";
  EXPECT_EQ(tokens_of(*must_parse(parts), "xxa"), "<unk>|<unk>|a");
  parts.model_settings = "";
  EXPECT_EQ(tokens_of(*must_parse(parts), "xxa"), "a");  // dropped
  parts.model_settings = R"("unk_token":"<none>",)";
  auto ids = must_parse(parts)->encode("x");
  ASSERT_FALSE(ids.ok());
  EXPECT_NE(ids.error().message.find("<none>"), std::string::npos);
}

// The scan for short words, the heap for long ones and the cutting at borders must agree: each long
// text is encoded once as a whole and once in the parts that are known not to touch.
TEST(Bpe, LongWordsMergeAsShortOnes) {
  FileParts parts;
  parts.vocab = {"a", "b", "c", "d", "|"};
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {  // random merges of what there is
    const std::string left = parts.vocab[random() % parts.vocab.size()];
    const std::string right = parts.vocab[random() % parts.vocab.size()];
    if (left == "|" || right == "|" || left.size() + right.size() > 12) continue;
    if (std::find(parts.vocab.begin(), parts.vocab.end(), left + right) == parts.vocab.end()) {
      parts.vocab.push_back(left + right);
    }
    if (std::find(parts.merges.begin(), parts.merges.end(), std::pair(left, right)) ==
        parts.merges.end()) {
      parts.merges.emplace_back(left, right);
    }
  }
  const auto tokenizer = must_parse(parts);
  for (int round = 0; round < 300; ++round) {
    std::string whole;
    std::vector<TokenId> joined;
    for (std::size_t part = 0; part < 20; ++part) {
      std::string text;
      for (std::size_t n = random() % 30; n > 0; --n) text += static_cast<char>('a' + random() % 4);
      text += '|';
      const auto ids = *tokenizer->encode(text);
      joined.insert(joined.end(), ids.begin(), ids.end());
      whole += text;
    }
    EXPECT_EQ(*tokenizer->encode(whole), joined);
  }
}

// A plain transcription of the definition: merge the pair of the lowest rank, leftmost first, until
// none is left.
std::vector<std::string> by_definition(const FileParts& parts, const std::string& text) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  for (;;) {
    std::size_t best_rank = parts.merges.size();
    std::size_t best = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (parts.merges[rank].first == symbols[i] && parts.merges[rank].second == symbols[i + 1]) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == parts.merges.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, EqualsTheDefinition) {
  std::mt19937 random(11);
  for (int vocabulary = 0; vocabulary < 10; ++vocabulary) {
    FileParts parts;
    parts.vocab = {"a", "b", "c"};
    for (int i = 0; i < 25; ++i) {
      const std::string left = parts.vocab[random() % parts.vocab.size()];
      const std::string right = parts.vocab[random() % parts.vocab.size()];
      if (std::find(parts.vocab.begin(), parts.vocab.end(), left + right) != parts.vocab.end())
        continue;
      parts.vocab.push_back(left + right);
      parts.merges.emplace_back(left, right);
    }
    const auto tokenizer = must_parse(parts);
    for (const std::size_t size : {3, 10, 39, 40, 41, 90, 2000, 2049, 3000}) {
      std::string text;
      while (text.size() < size) text += static_cast<char>('a' + random() % 3);
      std::string expected;
      for (const std::string& symbol : by_definition(parts, text))
        expected += (expected.empty() ? "" : "|") + symbol;
      EXPECT_EQ(tokens_of(*tokenizer, text), expected) << text;
    }
  }
}

}  // namespace
}  // namespace flotilla::tokenizer
