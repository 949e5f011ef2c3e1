#include "flotilla/chat/unicode_text.h"

#include <utf8proc.h>

#include <array>
#include <utility>

#include "flotilla/base/text.h"

namespace flotilla::chat {

namespace {

// Stands for a byte that is no UTF-8; out of the range of Unicode, so that appending it restores
// the byte.
constexpr char32_t kByteBase = 0x110000;

void append_char(std::string& out, char32_t c) {
  if (c >= kByteBase) {
    out += static_cast<char>(c - kByteBase);
  } else {
    append_utf8(out, c);
  }
}

// Letters whose capital is more than one character.
constexpr std::array<std::pair<char32_t, std::string_view>, 12> kLongUpper = {{
    {0xdf, "SS"},
    {0x149, "ʼN"},
    {0x1f0, "J̌"},
    {0x587, "ԵՒ"},
    {0x1e96, "H̱"},
    {0xfb00, "FF"},
    {0xfb01, "FI"},
    {0xfb02, "FL"},
    {0xfb03, "FFI"},
    {0xfb04, "FFL"},
    {0xfb05, "ST"},
    {0xfb06, "ST"},
}};

utf8proc_category_t category(char32_t c) {
  return c >= kByteBase ? UTF8PROC_CATEGORY_CN
                        : utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

char32_t next_char(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  const std::size_t size = lead >= 0xf0 && lead < 0xf5 ? 4
                           : lead >= 0xe0              ? 3
                           : lead >= 0xc2              ? 2
                                                       : 0;
  if (size == 0 || lead >= 0xf5 || at + size > text.size())
    return kByteBase + static_cast<unsigned char>(text[at++]);
  char32_t c = lead & (0x7f >> size);
  for (std::size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xc0) != 0x80) return kByteBase + static_cast<unsigned char>(text[at++]);
    c = (c << 6) | (next & 0x3f);
  }
  const bool is_scalar = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff) && (size < 3 || c >= 0x800) &&
                         (size < 4 || c >= 0x10000);
  if (!is_scalar) return kByteBase + static_cast<unsigned char>(text[at++]);
  at += size;
  return c;
}

std::size_t count_chars(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) next_char(text, at);
  return count;
}

std::size_t char_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index > 0 && at < text.size()) {
    next_char(text, at);
    --index;
  }
  return at;
}

bool is_space_char(char32_t c) {
  return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f) || c == 0x85 ||
         c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

std::size_t space_at(std::string_view text, std::size_t at) {
  std::size_t next = at;
  return is_space_char(next_char(text, next)) ? next - at : 0;
}

std::size_t trailing_space_start(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t start = end - 1;
    while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80)
      --start;
    const std::size_t size = space_at(text, start);
    if (size == 0 || start + size != end) break;
    end = start;
  }
  return end;
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    return;
  }
  for (const auto& [letter, capital] : kLongUpper) {
    if (letter == c) {
      out += capital;
      return;
    }
  }
  append_char(out, c >= kByteBase
                       ? c
                       : static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {
    out += "i̇";
  } else {
    append_char(out, c >= kByteBase ? c
                                    : static_cast<char32_t>(
                                          utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c < 0x80 || c >= kByteBase) return append_upper(out, c);
  if (c == 0xdf) {
    out += "Ss";
    return;
  }
  append_char(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

bool is_letter(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_alphanumeric(char32_t c) {
  const auto kind = category(c);
  return is_letter(c) || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

}  // namespace flotilla::chat
