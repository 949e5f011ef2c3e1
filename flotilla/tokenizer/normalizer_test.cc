#include "flotilla/tokenizer/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <boost/json.hpp>
#include <cstdlib>

#include "flotilla/base/text.h"
#include "flotilla/tokenizer/test_files.h"
#include "flotilla/tokenizer/unicode_ages.h"
#include "flotilla/tokenizer/unicode_forms.h"

namespace flotilla::tokenizer {
namespace {

using testing::kIsSanitized;

NormalizedText run(std::string_view json, std::string text, std::string trust = {}) {
  const boost::json::value value = boost::json::parse(json);
  auto normalizer = Normalizer::parse(&value);
  EXPECT_TRUE(normalizer.ok()) << to_string(normalizer.error());
  NormalizedText result;
  result.text = std::move(text);
  result.trust = std::move(trust);
  MatchBudget budget;
  EXPECT_TRUE(normalizer->run(result, budget).ok());
  return result;
}

TEST(Normalizer, StepsDoWhatTheirNamesSay) {
  EXPECT_EQ(run(R"({"type":"Lowercase"})", "\xC3\x84\xC4\xB0\xCE\xA3X").text,
            "\xC3\xA4i\xCC\x87\xCF\x83x");
  EXPECT_EQ(
      run(R"({"type":"Strip","strip_left":true,"strip_right":true})", "\xE3\x80\x80 a b\xC2\xA0\n")
          .text,
      "a b");
  EXPECT_EQ(run(R"({"type":"Strip","strip_left":false,"strip_right":true})", " a ").text, " a");
  EXPECT_EQ(run(R"({"type":"StripAccents"})", "e\xCC\x81\xE0\xA4\xA8\xE0\xA5\x8D").text,
            "e\xE0\xA4\xA8");
  EXPECT_EQ(run(R"({"type":"Prepend","prepend":"_"})", "a").text, "_a");
  EXPECT_EQ(run(R"({"type":"Prepend","prepend":"_"})", "").text, "");
  EXPECT_EQ(run(R"({"type":"Replace","pattern":{"Regex":"\\s+"},"content":" "})", "a \n b").text,
            "a b");
  EXPECT_EQ(run(R"({"type":"ByteLevel"})", "\xC3\xA9 ").text, "\xC3\x83\xC2\xA9\xC4\xA0");
}

TEST(Normalizer, ACharacterIsTrustedWhenAllItsPartsAre) {
  const auto nfc = run(R"({"type":"NFC"})", "e\xCC\x81x", {'\1', '\0', '\0', '\1'});
  EXPECT_EQ(nfc.text, "\xC3\xA9x");
  EXPECT_EQ(nfc.trust, std::string({'\0', '\0', '\1'}));
  const auto replaced = run(R"({"type":"Replace","pattern":{"String":"ab"},"content":"xyz"})",
                            "abab", {'\1', '\1', '\1', '\0'});
  EXPECT_EQ(replaced.trust, std::string({'\1', '\1', '\1', '\0', '\0', '\0'}));
  const auto stripped =
      run(R"({"type":"Strip","strip_left":true,"strip_right":true})", " a ", {'\0', '\1', '\0'});
  EXPECT_EQ(stripped.trust, std::string({'\1'}));
}

bool is_newer(char32_t c) {
  for (const CodePointRange& range : kUnknownToNormalization) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

// As in the reference, which would order the mark U+07FD (class 220) before the acute accent if it
// knew it.
TEST(UnicodeForms, LaterCharactersAreLeftAlone) {
  EXPECT_EQ(run(R"({"type":"NFC"})", "A\xDF\xBD\xCC\x81").text, "A\xDF\xBD\xCC\x81");
  EXPECT_EQ(run(R"({"type":"NFC"})", "A\xCC\xA3\xCC\x81").text, "\xE1\xBA\xA0\xCC\x81");
  EXPECT_EQ(run(R"({"type":"NFKC"})", "\xE3\x8B\xBF").text, "\xE3\x8B\xBF");  // the era name Reiwa
  EXPECT_EQ(run(R"({"type":"StripAccents"})", "e\xDF\xBD\xCC\x81").text, "e\xDF\xBD");
}

// Our piecewise forms must equal the library's own, which is quadratic but otherwise right.
TEST(UnicodeForms, EqualTheLibraryForEveryCodePoint) {
  const std::pair<UnicodeForm, int> forms[] = {
      {{.compatible = false, .compose = false}, UTF8PROC_DECOMPOSE},
      {{.compatible = false, .compose = true}, UTF8PROC_COMPOSE},
      {{.compatible = true, .compose = false}, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
      {{.compatible = true, .compose = true}, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
  };
  for (const auto& [form, options] : forms) {
    for (char32_t c = 0x21; c < 0x30000; c += kIsSanitized ? 7 : 1) {
      if ((c >= 0xD800 && c <= 0xDFFF) || is_newer(c)) continue;
      std::string text = "a";
      append_utf8(text, c);
      text += "\xCC\xA3\xCC\x81";  // dot below, acute
      append_utf8(text, c);
      text += "\xE3\x82\x99\xE1\x85\xA1\xE1\x86\xAB";  // voice mark, Hangul vowel and final
      std::string ours;
      for (std::size_t i = 0; i < text.size();) {
        const std::size_t end = form_piece_end(text, i, form);
        const std::string piece = text.substr(i, end - i);
        if (is_stable_piece(piece, form))
          ours += piece;
        else
          append_form(ours, piece, form);
        i = end;
      }
      utf8proc_uint8_t* library = nullptr;
      const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &library,
                                     static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
      ASSERT_GE(size, 0);
      const std::string expected(reinterpret_cast<const char*>(library),
                                 static_cast<std::size_t>(size));
      std::free(library);
      ASSERT_EQ(ours, expected) << std::hex << static_cast<unsigned>(c) << " form " << options;
      // A stable character alone is its own form.
      std::string one;
      append_utf8(one, c);
      std::string made;
      append_form(made, one, form);
      ASSERT_TRUE(!is_stable_piece(one, form) || made == one)
          << std::hex << static_cast<unsigned>(c);
    }
  }
}

}  // namespace
}  // namespace flotilla::tokenizer
