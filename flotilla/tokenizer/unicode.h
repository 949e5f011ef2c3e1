// What the tokenizer needs to know about characters: classes of code points and UTF-8 walking. Data
// of utf8proc (Unicode 15 in release 2.8). Every function is safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace flotilla::tokenizer {

// A set of these; every assigned character has exactly one of the first seven at most, kSpace comes
// on top.
using CharClass = std::uint8_t;
inline constexpr CharClass kUpper = 1;        // Lu, Lt
inline constexpr CharClass kLower = 2;        // Ll
inline constexpr CharClass kOtherLetter = 4;  // Lm, Lo
inline constexpr CharClass kMark = 8;         // Mn, Mc, Me
inline constexpr CharClass kNumber = 16;      // Nd, Nl, No
inline constexpr CharClass kPunctuation = 32;
inline constexpr CharClass kSymbol = 64;
inline constexpr CharClass kSpace = 128;  // the White_Space property
inline constexpr CharClass kLetter = kUpper | kLower | kOtherLetter;

// Two-level table over all code points, built once.
class CharTable {
 public:
  static const CharTable& instance();
  CharClass operator[](char32_t c) const {
    return c < 128 ? ascii_[c] : pages_[std::size_t{page_of_[c >> 8]} * 256 + (c & 255)];
  }

 private:
  CharTable();
  std::array<CharClass, 128> ascii_{};
  std::vector<std::uint16_t> page_of_;
  std::vector<CharClass> pages_;
};

inline CharClass char_class(char32_t c) { return CharTable::instance()[c]; }
inline bool is_space(char32_t c) { return (char_class(c) & kSpace) != 0; }
bool is_punctuation(char32_t c);  // P* and the ASCII symbols
// \w of the reference's regular expressions; `join_controls` adds ZWJ and ZWNJ.
bool is_word(char32_t c, bool join_controls);

struct DecodedChar {
  char32_t code_point;
  std::uint32_t size;  // bytes
};
// The character at `p`, which must begin a well-formed one.
inline DecodedChar decode_char(const char* p) {
  const auto byte = [p](int i) { return static_cast<unsigned char>(p[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {(lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  return {
      (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu),
      4};
}
// Start of the character that ends before `end`; `end` > 0 and on a character border.
inline std::size_t previous_char(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

}  // namespace flotilla::tokenizer
