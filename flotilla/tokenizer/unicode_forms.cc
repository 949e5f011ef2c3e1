#include "flotilla/tokenizer/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "flotilla/base/check.h"
#include "flotilla/base/text.h"
#include "flotilla/tokenizer/unicode.h"
#include "flotilla/tokenizer/unicode_ages.h"

namespace flotilla::tokenizer {
namespace {

// Below this every character is a starter that never joins with its predecessor.
constexpr char32_t kFirstCombining = 0x300;

bool is_in(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

bool is_known(char32_t c) {
  const auto* end = std::end(kUnknownToNormalization);
  const auto* found =
      std::lower_bound(std::begin(kUnknownToNormalization), end, c,
                       [](const CodePointRange& range, char32_t x) { return range.last < x; });
  return found == end || c < found->first;
}

// True when `c` may be reordered before or composed with what precedes it.
bool joins_left(char32_t c, bool compatible) {
  if (c < kFirstCombining) return false;
  if (is_normalization_mark(c)) return true;
  if (is_in(c, 0x1160, 0x11FF)) return true;  // Hangul vowels and finals
  // Their compatibility forms are such vowels or combining voice marks.
  return compatible && (is_in(c, 0x3130, 0x318F) || is_in(c, 0xFF9E, 0xFFDC));
}

}  // namespace

bool is_normalization_mark(char32_t c) { return (char_class(c) & kMark) != 0 && is_known(c); }

std::size_t form_piece_end(std::string_view text, std::size_t begin, UnicodeForm form) {
  const auto [first, first_size] = decode_char(text.data() + begin);
  std::size_t end = begin + first_size;
  if (first >= kFirstCombining && !is_known(first)) return end;
  while (end < text.size()) {
    const auto [c, size] = decode_char(text.data() + end);
    if (!joins_left(c, form.compatible)) break;
    end += size;
  }
  return end;
}

bool is_stable_piece(std::string_view piece, UnicodeForm form) {
  const auto [c, size] = decode_char(piece.data());
  if (size != piece.size()) return false;
  if (c < 0x80) return true;
  // Precomposed letters of widespread scripts compose to themselves.
  if (form.compose && !form.compatible &&
      (c < kFirstCombining || is_in(c, 0x0400, 0x0482) || is_in(c, 0x1E00, 0x1EFF) ||
       is_in(c, 0x3041, 0x3098))) {
    return true;
  }
  // Hangul syllables decompose by rule, not by table.
  if (is_in(c, 0xAC00, 0xD7A3)) return form.compose;
  const utf8proc_property_t* p = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (p->decomp_seqindex == UINT16_MAX || !is_known(c)) return true;
  // A compatibility mapping does not matter to the canonical forms.
  return !form.compatible && p->decomp_type != 0;
}

void append_form(std::string& out, std::string_view piece, UnicodeForm form) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (form.compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> chars;
  chars.reserve(piece.size());
  for (std::size_t i = 0; i < piece.size();) {
    const auto [c, size] = decode_char(piece.data() + i);
    i += size;
    utf8proc_int32_t buffer[32];  // the longest decomposition has 18
    int boundary = 0;
    const auto n =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, 32, options, &boundary);
    FLOTILLA_CHECK(n >= 0 && n <= 32, "character decomposes into too much");
    chars.insert(chars.end(), buffer, buffer + n);
  }
  // Canonical order. utf8proc would sort by insertion, which is quadratic in the number of marks.
  const auto order = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (std::size_t i = 0; i < chars.size();) {
    if (order(chars[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    while (end < chars.size() && order(chars[end]) != 0) ++end;
    std::stable_sort(chars.begin() + static_cast<std::ptrdiff_t>(i),
                     chars.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](auto a, auto b) { return order(a) < order(b); });
    i = end;
  }
  std::size_t length = chars.size();
  if (form.compose) {
    const auto n = utf8proc_normalize_utf32(
        chars.data(), static_cast<utf8proc_ssize_t>(length),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    FLOTILLA_CHECK(n >= 0, "composition failed");
    length = static_cast<std::size_t>(n);
  }
  for (std::size_t i = 0; i < length; ++i) append_utf8(out, static_cast<char32_t>(chars[i]));
}

}  // namespace flotilla::tokenizer
