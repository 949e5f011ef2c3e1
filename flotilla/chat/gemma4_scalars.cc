#include "flotilla/chat/gemma4_scalars.h"

#include <cstdio>

namespace flotilla::chat {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_json_number(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t start = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - start;
  };
  if (i < text.size() && text[i] == '-') ++i;
  const std::size_t first = i;
  const std::size_t whole = digits();
  if (whole == 0 || (whole > 1 && text[first] == '0')) return false;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    // Exponents of four digits leave the range of doubles, and clients refuse them.
    const std::size_t exponent = digits();
    if (exponent == 0 || exponent > 2) return false;
  }
  return i == text.size() && text.size() <= 280;
}

}  // namespace

void append_json_character(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      if (static_cast<unsigned char>(c) < 0x20) {
        char code[8];
        std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
        out += code;
      } else {
        out += c;
      }
  }
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) append_json_character(out, c);
  return out + '"';
}

std::string json_scalar(std::string_view text) {
  if (text == "true" || text == "True") return "true";
  if (text == "false" || text == "False") return "false";
  if (text == "null" || text == "None" || text.empty()) return "null";
  return is_json_number(text) ? std::string(text) : json_quoted(text);
}

}  // namespace flotilla::chat
