#include "flotilla/tokenizer/unicode.h"

#include <utf8proc.h>

#include <map>

namespace flotilla::tokenizer {
namespace {

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

CharClass class_of(char32_t c) {
  CharClass result = is_white_space(c) ? kSpace : CharClass{0};
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return result | kUpper;
    case UTF8PROC_CATEGORY_LL:
      return result | kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return result | kOtherLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return result | kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return result | kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return result | kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return result | kSymbol;
    default:
      return result;
  }
}

constexpr char32_t kNumCodePoints = 0x110000;

}  // namespace

CharTable::CharTable() {
  page_of_.resize(kNumCodePoints >> 8);
  std::map<std::vector<CharClass>, std::uint16_t> known;  // equal pages are stored once
  std::vector<CharClass> page(256);
  for (char32_t base = 0; base < kNumCodePoints; base += 256) {
    for (char32_t i = 0; i < 256; ++i) page[i] = class_of(base + i);
    const auto [it, is_new] = known.try_emplace(page, static_cast<std::uint16_t>(known.size()));
    if (is_new) pages_.insert(pages_.end(), page.begin(), page.end());
    page_of_[base >> 8] = it->second;
  }
  for (char32_t c = 0; c < 128; ++c) ascii_[c] = class_of(c);
}

const CharTable& CharTable::instance() {
  static const CharTable table;
  return table;
}

bool is_punctuation(char32_t c) {
  const CharClass cls = char_class(c);
  return (cls & kPunctuation) != 0 || (c < 128 && (cls & kSymbol) != 0);
}

bool is_word(char32_t c, bool join_controls) {
  if ((char_class(c) & (kLetter | kMark)) != 0) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  if (c == 0x200C || c == 0x200D) return join_controls;
  // Letters in circles and squares: symbols with the property Other_Alphabetic.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace flotilla::tokenizer
