#include "flotilla/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include "flotilla/tokenizer/test_files.h"

namespace flotilla::tokenizer {
namespace {

using namespace testing;

// B54. The expected ids were checked against the reference, see
// tests/tokenizer/cases/added_flags.json.
class AddedTokenFlags : public ::testing::Test {
 protected:
  static std::string split(std::string_view text) {
    FileParts parts;
    parts.vocab = byte_level_vocab();
    parts.pre_tokenizer = kByteLevel;
    parts.added = added_token("<m>", "lstrip special") + "," +
                  added_token("<u>", "rstrip special") + "," +
                  added_token("<w>", "single_word special") + "," + added_token("<u", "") + "," +
                  added_token("<n>", "normalized");
    parts.normalizer = R"({"type":"Lowercase"})";
    static const auto tokenizer = must_parse(parts);
    return tokens_of(*tokenizer, text);
  }
};

TEST_F(AddedTokenFlags, LstripTakesTheBlanksBefore) {
  EXPECT_EQ(split("a <m> b"), "a|<m>|Ġ|b");
  EXPECT_EQ(split("a<m>b"), "a|<m>|b");  // no condition for a match
  EXPECT_EQ(split(" \t\xC2\xA0\xE3\x80\x80<m>"), "<m>");
  EXPECT_EQ(split("<m><m>"), "<m>|<m>");
  EXPECT_EQ(split("<m>  <m>"), "<m>|<m>");
}
TEST_F(AddedTokenFlags, RstripTakesTheBlanksBehind) {
  EXPECT_EQ(split("<u>Abc"), "<u>|a|b|c");
  EXPECT_EQ(split("<u>\xC2\xA0\t x"), "<u>|x");
  EXPECT_EQ(split("<u>  <m>"), "<u>|<m>");
  // A zero-width space is no white space.
  EXPECT_EQ(split("<u>\xE2\x80\x8B"), "<u>|â|Ģ|ĭ");
}
TEST_F(AddedTokenFlags, SingleWordNeedsNoLetterBeside) {
  EXPECT_EQ(split("x<w>y <w> z"), "x|<|w|>|y|Ġ|<w>|Ġ|z");
  EXPECT_EQ(split("<w>"), "<w>");
  EXPECT_EQ(split("!<w>?"), "!|<w>|?");
  EXPECT_EQ(split("\xC3\xA9<w>"), "Ã|©|<|w|>");
}
TEST_F(AddedTokenFlags, LongestMatchFirst) {
  EXPECT_EQ(split("<u>"), "<u>");
  EXPECT_EQ(split("<ux"), "<u|x");
  EXPECT_EQ(split("<<u>"), "<|<u>");
}
TEST_F(AddedTokenFlags, NormalizedTokensMatchTheNormalizedText) {
  EXPECT_EQ(split("<N>"), "<n>");
  EXPECT_EQ(split("<M>"), "<|m|>");
}

TEST(AddedTokens, IdsFollowTheModelInOrderOfTheFile) {
  FileParts parts;
  parts.vocab = {"a", "b", "<x>"};
  parts.added = added_token("<y>") + "," + added_token("<x>") + "," + added_token("<z>") + "," +
                added_token("<y>", "") + "," + added_token("");
  const auto tokenizer = must_parse(parts);
  EXPECT_EQ(tokenizer->token_to_id("<y>"), 3);
  EXPECT_EQ(tokenizer->token_to_id("<x>"), 2);
  EXPECT_EQ(tokenizer->token_to_id("<z>"), 4);
  EXPECT_EQ(tokenizer->vocab_size(), 5u);
  EXPECT_TRUE(tokenizer->is_special(3));  // once special, always special
}

TEST(AddedTokens, TooLongContentIsRefused) {
  FileParts parts;
  parts.vocab = {"a"};
  parts.added = added_token(std::string(5000, 'x'));
  const Error error = parse_error(make_file(parts));
  EXPECT_EQ(error.code, ErrorCode::kTooLarge);
  EXPECT_NE(error.message.find("added_tokens[0]"), std::string::npos) << error.message;
}

// Blanks that are tokens themselves, with a token that takes all of them: each one is looked at
// once.
TEST(AddedTokens, StrippingIsLinear) {
  FileParts parts;
  parts.vocab = byte_level_vocab();
  parts.pre_tokenizer = kByteLevel;
  parts.added = added_token("\n", "rstrip") + "," + added_token("\t", "lstrip");
  const auto tokenizer = must_parse(parts);
  for (const char c : {'\n', '\t'}) {
    auto ids = tokenizer->encode(std::string(300000, c));
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(ids->size(), 300000u);
  }
}

}  // namespace
}  // namespace flotilla::tokenizer
