#include <gtest/gtest.h>

#include <random>

#include "flotilla/base/text.h"
#include "flotilla/tokenizer/test_files.h"
#include "flotilla/tokenizer/utf8_assembler.h"

namespace flotilla::tokenizer {
namespace {

using namespace testing;

constexpr std::string_view kMixed =
    "a\xC3\xA9\xE8\xB5\x8B\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A"
    "\x80";  // aé赋😀👩‍🚀

std::shared_ptr<const Tokenizer> byte_level_tokenizer() {
  FileParts parts;
  parts.vocab = byte_level_vocab();
  parts.pre_tokenizer = kByteLevel;
  parts.decoder = kByteLevel;
  parts.added = added_token("<s>");
  return must_parse(parts);
}

std::shared_ptr<const Tokenizer> fallback_tokenizer() {
  FileParts parts;
  parts.vocab = {"<unk>"};
  for (unsigned b = 0; b < 256; ++b)
    parts.vocab.push_back(byte_fallback_token(static_cast<std::uint8_t>(b)));
  for (const char* token : {"\xE2\x96\x81", "a", "b", "\xC3\xA9"}) parts.vocab.emplace_back(token);
  parts.normalizer = R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})";
  parts.decoder =
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},
      {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
  parts.model_settings = R"("unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,)";
  return must_parse(parts);
}

// Every piece is well-formed, and together they are the text at once.
std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, false);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  const std::string rest = detokenizer.finish();
  EXPECT_TRUE(is_valid_utf8(rest));
  text += rest;
  EXPECT_EQ(text, tokenizer.decode(ids, false));
  return text;
}

// B19: characters cut at every place.
TEST(Detokenizer, NeverEmitsHalfACharacter) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    // A vocabulary of random cuts of the text.
    FileParts parts;
    parts.vocab = byte_level_vocab();
    parts.pre_tokenizer = kByteLevel;
    parts.decoder = kByteLevel;
    std::vector<TokenId> ids;
    for (std::size_t pos = 0; pos < kMixed.size();) {
      const std::size_t size = std::min<std::size_t>(kMixed.size() - pos, 1 + random() % 6);
      std::string token;
      append_byte_level(token, kMixed.substr(pos, size));
      const auto known = std::find(parts.vocab.begin(), parts.vocab.end(), token);
      ids.push_back(static_cast<TokenId>(known - parts.vocab.begin()));
      if (known == parts.vocab.end()) parts.vocab.push_back(token);
      pos += size;
    }
    const auto tokenizer = must_parse(parts);
    EXPECT_EQ(stream(*tokenizer, ids), kMixed);
    EXPECT_EQ(tokenizer->decode(ids, false).find("\xEF\xBF\xBD"), std::string::npos);
  }
}

TEST(Detokenizer, EmitsACharacterAsSoonAsItIsWhole) {
  const auto tokenizer = byte_level_tokenizer();
  Detokenizer detokenizer(*tokenizer, false);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(detokenizer.push('x'), "x");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, BrokenCharactersBecomeReplacementMarks) {
  const auto tokenizer = byte_level_tokenizer();
  EXPECT_EQ(stream(*tokenizer, {0xF0, 0x9F, 'a'}),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream(*tokenizer, {0xE8, 0xB5}), "\xEF\xBF\xBD");
  EXPECT_EQ(stream(*tokenizer, {0x80, 0xFF, 'a'}),
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream(*tokenizer, {0xED, 0xA0, 0x80}),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");                    // a surrogate
  EXPECT_EQ(stream(*tokenizer, {0xF0, 256, 'a'}), "\xEF\xBF\xBD<s>a");  // a special token between
}

// The reference judges a row of byte tokens as a whole.
TEST(Detokenizer, ByteFallbackRowsAreAllOrNothing) {
  const auto tokenizer = fallback_tokenizer();
  const auto byte = [](int b) { return static_cast<TokenId>(1 + b); };
  EXPECT_EQ(stream(*tokenizer, {byte(0xE8), byte(0xB5), byte(0x8B)}), "\xE8\xB5\x8B");
  EXPECT_EQ(stream(*tokenizer, {byte(0xE8), byte(0xB5), byte(0x8B), byte(0xFF)}),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(stream(*tokenizer, {byte(0xE8), 258, byte(0x8B)}),
            "\xEF\xBF\xBD"
            "a\xEF\xBF\xBD");
  EXPECT_EQ(stream(*tokenizer, *tokenizer->encode(kMixed)), kMixed);
}

TEST(Detokenizer, StripsTheFirstBlankOfTheWholeTextOnly) {
  const auto tokenizer = fallback_tokenizer();
  EXPECT_EQ(stream(*tokenizer, {257, 258, 257, 259}), "a b");
  EXPECT_EQ(stream(*tokenizer, {257, 257, 258}), " a");
  Detokenizer detokenizer(*tokenizer, false);
  EXPECT_EQ(detokenizer.push(257), "");
  EXPECT_EQ(detokenizer.push(257), " ");
}

TEST(Detokenizer, RandomIdsStreamAsTheyDecode) {
  std::mt19937 random(2);
  for (const auto& tokenizer : {byte_level_tokenizer(), fallback_tokenizer()}) {
    for (int round = 0; round < 2000; ++round) {
      std::vector<TokenId> ids(random() % 12);
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % 264);
      stream(*tokenizer, ids);
    }
  }
}

TEST(Detokenizer, DecodersThatLookAtTheEnds) {
  FileParts parts;
  parts.vocab = {"a", "b", " ", "x</w>"};
  const auto text = [&](const std::string& decoder, const std::vector<TokenId>& ids) {
    parts.decoder = decoder;
    return stream(*must_parse(parts), ids);
  };
  EXPECT_EQ(text("null", {0, 1, 0}), "a b a");
  EXPECT_EQ(text(R"({"type":"BPEDecoder","suffix":"</w>"})", {3, 0, 3}), "x ax");
  EXPECT_EQ(
      text(
          R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":0,"stop":2}]})",
          {0, 2, 1, 2, 2, 2}),
      "a b ");
  EXPECT_EQ(
      text(
          R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"String":"ab"},"content":"!"}]})",
          {0, 1, 0}),
      "!a");
  EXPECT_EQ(text(R"({"type":"Strip","content":"a","start":3,"stop":3})", {0, 1}), "b");
}

TEST(Utf8Assembler, HoldsBackOnlyWhatCanBecomeACharacter) {
  Utf8Assembler assembler;
  std::string out;
  assembler.push("\xF4\x8F", out);
  EXPECT_EQ(out, "");
  assembler.push("\xBF", out);
  EXPECT_EQ(out, "");
  assembler.push("\xBF", out);
  EXPECT_EQ(out, "\xF4\x8F\xBF\xBF");
  out.clear();
  assembler.push("\xF4\x90", out);  // beyond the last code point
  EXPECT_EQ(out, "\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace flotilla::tokenizer
