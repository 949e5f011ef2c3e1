// Files and texts that were made to hurt.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "flotilla/tokenizer/scanners.h"
#include "flotilla/tokenizer/test_files.h"

namespace flotilla::tokenizer {
namespace {

using namespace testing;

std::string head(std::string_view rest) {
  return R"({"added_tokens":[],"model":)" + std::string(rest) + "}";
}

// B57: each of these is refused with a message that names the place.
TEST(HostileFile, ErrorsNameThePlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "JSON"},
      {"[]", "not a JSON object"},
      {"{}", "'model'"},
      {R"({"model":[]})", "'model'"},
      {"{\"model\":{\"vocab\":{\"a\":0", "byte"},
      {head(R"({"type":"Unigram","vocab":[["a",0.1]],"unk_id":0})"), "'Unigram'"},
      {head(R"({"type":"WordPiece","vocab":{"a":0},"unk_token":"a"})"), "'WordPiece'"},
      {head(R"({"type":"WordLevel","vocab":{"a":0}})"), "'WordLevel'"},
      {head(R"({"type":"BPE"})"), "model.vocab"},
      {head(R"({"type":"BPE","vocab":{"a":0}})"), "model.merges"},
      {head(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"), "model.vocab"},
      {head(R"({"type":"BPE","vocab":{"a":4000000000},"merges":[]})"), "model.vocab"},
      {head(R"({"type":"BPE","vocab":{"a":18446744073709551615},"merges":[]})"), "model.vocab"},
      {head(R"({"type":"BPE","vocab":{"a":1.5},"merges":[]})"), "model.vocab"},
      {head(R"({"type":"BPE","vocab":{"a":{"b":1}},"merges":[]})"), "model.vocab"},
      {head(R"({"type":"BPE","vocab":{"a":[1]},"merges":[]})"), "model.vocab"},
      {head(R"({"type":"BPE","vocab":{"a":null},"merges":[]})"), "model.vocab"},
      {head(R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b"]]})"),
       "model.merges[0]: 'ab'"},
      {head(R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b","a x"]})"),
       "model.merges[1]: 'x'"},
      {head(R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})"), "model.merges[0]"},
      {head(R"({"type":"BPE","vocab":{"a":0},"merges":["a b c"]})"), "model.merges[0]"},
      {head(R"({"type":"BPE","vocab":{"a":0},"merges":[["a"]]})"), "model.merges[0]"},
      {head(R"({"type":"BPE","vocab":{"a":0},"merges":[["a","a","a"]]})"), "model.merges[0]"},
      {head(R"({"type":"BPE","vocab":{"a":0},"merges":[[["a"],"a"]]})"), "model.merges[0]"},
      {head(R"({"type":"BPE","vocab":{"a":0},"merges":[1]})"), "model.merges[0]"},
      {head(R"({"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.5})"), "dropout"},
      {head(
           R"({"type":"BPE","vocab":{"##a":0,"a":1},"merges":[["a","a"]],"continuing_subword_prefix":"##"})"),
       "model.merges[0]"},
      {R"({"version":"2.0","model":{}})", "2.0"},
  };
  for (const auto& [text, expected] : cases) {
    const Error error = parse_error(text);
    EXPECT_NE(error.message.find(expected), std::string::npos) << error.message << " for " << text;
  }
  EXPECT_EQ(parse_error(cases[5].first).code, ErrorCode::kUnsupported);
  EXPECT_EQ(parse_error(std::string((128u << 20) + 1, ' ')).code, ErrorCode::kTooLarge);
  EXPECT_EQ(Tokenizer::load("/no/such/file").error().code, ErrorCode::kNotFound);
}

TEST(HostileFile, UnknownComponentsAreNamed) {
  FileParts parts;
  parts.vocab = {"a"};
  const auto fails = [&](std::string FileParts::*member, const std::string& value,
                         const std::string& expected) {
    FileParts changed = parts;
    changed.*member = value;
    const Error error = parse_error(make_file(changed));
    EXPECT_NE(error.message.find(expected), std::string::npos) << error.message;
    return error.code;
  };
  EXPECT_EQ(fails(&FileParts::normalizer, R"({"type":"Precompiled"})",
                  "normalizer of type 'Precompiled'"),
            ErrorCode::kUnsupported);
  EXPECT_EQ(fails(&FileParts::pre_tokenizer, R"({"type":"UnicodeScripts"})",
                  "pre_tokenizer of type 'UnicodeScripts'"),
            ErrorCode::kUnsupported);
  EXPECT_EQ(
      fails(&FileParts::post_processor, R"({"type":"Magic"})", "post_processor of type 'Magic'"),
      ErrorCode::kUnsupported);
  EXPECT_EQ(fails(&FileParts::decoder, R"({"type":"Sequence","decoders":[{"type":"CTC"}]})",
                  "decoder.decoders of type 'CTC'"),
            ErrorCode::kUnsupported);
  fails(&FileParts::pre_tokenizer,
        R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false})", "'('");
  fails(&FileParts::pre_tokenizer,
        R"({"type":"Split","pattern":{},"behavior":"Isolated","invert":false})", "pattern");
  fails(&FileParts::pre_tokenizer,
        R"({"type":"Split","pattern":{"String":"a"},"behavior":"Odd","invert":false})", "Odd");
  fails(&FileParts::pre_tokenizer, R"({"type":"Metaspace","replacement":"ab"})", "replacement");
  fails(&FileParts::pre_tokenizer, R"([])", "type");
  fails(&FileParts::normalizer, R"({"type":"Sequence"})", "normalizers");
  fails(&FileParts::added, R"({"id":1})", "added_tokens[0].content");
  fails(
      &FileParts::post_processor,
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}],"special_tokens":{}})",
      "'<s>'");
  std::string deep = R"({"type":"NFC"})";
  for (int i = 0; i < 20; ++i) deep = R"({"type":"Sequence","normalizers":[)" + deep + "]}";
  fails(&FileParts::normalizer, deep, "deep");
}

TEST(HostileFile, HolesAndRepeatedIdsAreBounded) {
  auto tokenizer = Tokenizer::parse(
      R"({"added_tokens":[)" + added_token("<x>") + "," + added_token("<x>") + "," +
      added_token("<y>") +
      R"(],"model":{"type":"BPE","vocab":{"a":0,"b":0,"ab":16777215,"c":5},"merges":[["a","b"]]}})");
  ASSERT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  EXPECT_EQ((*tokenizer)->vocab_size(), std::size_t{1} << 24);
  EXPECT_EQ(*(*tokenizer)->encode("ab"), std::vector<TokenId>{16777215});
  EXPECT_FALSE((*tokenizer)->id_to_token(7).has_value());
  EXPECT_EQ((*tokenizer)->token_bytes(7), "");
  EXPECT_EQ((*tokenizer)->decode(std::vector<TokenId>{7, 16777215}, false), "ab");
}

// Members that mean nothing to us cost no memory; those that do are counted.
TEST(HostileFile, HugeFilesAreReadOrRefused) {
  const auto grow = [](std::string text, std::size_t size) {
    std::string unit = "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20],";
    while (unit.size() < (1u << 16)) unit += unit;
    while (text.size() < size) text += unit;
    return text;
  };
  const std::string tail = R"(0],"model":{"vocab":{"a":0},"merges":[]}})";
  auto skipped = Tokenizer::parse(grow(R"({"padding":[)", 100u << 20) + tail);
  ASSERT_TRUE(skipped.ok()) << to_string(skipped.error());
  const Error error = parse_error(grow(R"({"added_tokens":[)", 20u << 20) + tail);
  EXPECT_EQ(error.code, ErrorCode::kTooLarge);
}

// B56. Vocabularies of the kinds in use, with merges that make long runs of one letter work for it.
class HostileText : public ::testing::TestWithParam<int> {
 protected:
  static std::shared_ptr<const Tokenizer> make(int kind) {
    FileParts parts;
    const auto add_runs = [&](const std::string& unit) {
      std::string run = unit;
      for (int doubling = 0; doubling < 5; ++doubling) {
        parts.merges.emplace_back(run, run);
        run += run;
        parts.vocab.push_back(run);
      }
    };
    if (kind == 0) {  // the whole text is one word, with byte fallback
      parts.vocab = {"<unk>"};
      for (unsigned b = 0; b < 256; ++b)
        parts.vocab.push_back(byte_fallback_token(static_cast<std::uint8_t>(b)));
      for (const char* token : {"\xE2\x96\x81", "a", "b", "!", "\n"}) {
        parts.vocab.emplace_back(token);
        add_runs(token);
      }
      parts.normalizer = R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})";
      parts.decoder =
          R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},
          {"type":"ByteFallback"},{"type":"Fuse"}]})";
      parts.model_settings = R"("unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,)";
      return must_parse(parts);
    }
    parts.vocab = byte_level_vocab();
    for (const char* byte : {"a", "!", "Ġ", "Ċ"}) add_runs(byte);
    parts.decoder = kByteLevel;
    const auto split = [](std::string_view pattern) {
      return R"({"type":"Split","pattern":{"Regex":)" +
             boost::json::serialize(boost::json::string(pattern)) +
             R"(},"behavior":"Isolated","invert":false})";
    };
    const auto patterns = scanner_patterns();
    std::string splits;
    if (kind < static_cast<int>(patterns.size()) - 2) {
      splits = split(patterns[static_cast<std::size_t>(kind) - 1]);
    } else {
      for (std::size_t i = patterns.size() - 3; i < patterns.size(); ++i)
        splits += (splits.empty() ? "" : ",") + split(patterns[i]);
    }
    parts.normalizer = R"({"type":"NFC"})";
    parts.pre_tokenizer =
        R"({"type":"Sequence","pretokenizers":[)" + splits +
        R"(,{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
    return must_parse(parts);
  }
};

TEST_P(HostileText, IsEncodedInLinearTime) {
  const auto tokenizer = make(GetParam());
  std::mt19937 random(5);
  const auto base64 = [&](std::size_t n) {
    std::string text;
    while (text.size() < n) {
      text += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[random() % 64];
    }
    return text;
  };
  const auto repeat = [](std::string_view unit, std::size_t n) {
    std::string text;
    while (text.size() < n) text += unit;
    return text;
  };
  const std::pair<std::string, std::function<std::string(std::size_t)>> kinds[] = {
      {"a", [&](std::size_t n) { return repeat("a", n); }},
      {"A", [&](std::size_t n) { return repeat("A", n); }},
      {"blank", [&](std::size_t n) { return repeat(" ", n); }},
      {"newline", [&](std::size_t n) { return repeat("\n", n); }},
      {"blank, newline", [&](std::size_t n) { return repeat(" ", n / 2) + repeat("\n ", n / 2); }},
      {"!", [&](std::size_t n) { return repeat("!", n); }},
      {"hiragana", [&](std::size_t n) { return repeat("\xE3\x81\x82", n); }},
      {"base64", base64},
      {"marks",
       [&](std::size_t n) {
         return "a" + repeat("\xCC\x81\xCC\xA3", n);
       }},  // two classes, out of order
  };
  for (const auto& kind : kinds) {
    const auto& name = kind.first;  // no structured binding: Clang 14 cannot capture those
    const auto& make_text = kind.second;
    const auto time = [&](std::size_t n) {
      const std::string text = make_text(n);
      std::string decoded;
      // Decoding is part of it: the ids must give the text back.
      const double seconds = seconds_of([&] {
        auto ids = tokenizer->encode(text);
        ASSERT_TRUE(ids.ok()) << to_string(ids.error());
        decoded = tokenizer->decode(*ids, false);
      });
      if (name != "marks") {
        EXPECT_TRUE(decoded == text) << name;
      }
      return seconds;
    };
    constexpr std::size_t kLarge = kIsSanitized ? 100'000 : 1'000'000;
    const double small = time(kLarge / 10);
    const double large = time(kLarge);
    if (std::getenv("TOKENIZER_TIMES"))
      std::printf("%d %s: %.4f %.4f\n", GetParam(), name.c_str(), small, large);
    EXPECT_LT(large, 3.0) << name;
    // Small times are noise on a busy machine.
    EXPECT_LT(large, 15 * std::max(small, 0.01)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostileText, ::testing::Range(0, 7));

}  // namespace
}  // namespace flotilla::tokenizer
