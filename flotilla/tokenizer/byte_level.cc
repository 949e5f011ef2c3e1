#include "flotilla/tokenizer/byte_level.h"

#include <array>

#include "flotilla/base/text.h"
#include "flotilla/tokenizer/unicode.h"

namespace flotilla::tokenizer {
namespace {

struct Alphabet {
  std::array<std::string, 256> chars;
  std::array<std::int16_t, 512> bytes;  // by code point; -1 where no letter
  Alphabet() {
    bytes.fill(-1);
    char32_t next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      // Printable Latin-1 stands for itself; the rest is moved behind it in order.
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = printable ? b : next++;
      append_utf8(chars[b], c);
      bytes[c] = static_cast<std::int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string_view byte_level_char(std::uint8_t byte) { return alphabet().chars[byte]; }

std::optional<std::uint8_t> byte_level_byte(char32_t c) {
  if (c >= 512 || alphabet().bytes[c] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(alphabet().bytes[c]);
}

void append_byte_level(std::string& out, std::string_view text) {
  const Alphabet& letters = alphabet();
  for (const char c : text) out += letters.chars[static_cast<unsigned char>(c)];
}

bool append_byte_level_bytes(std::string& out, std::string_view token) {
  const std::size_t old_size = out.size();
  for (std::size_t i = 0; i < token.size();) {
    const auto [c, size] = decode_char(token.data() + i);
    const auto byte = byte_level_byte(c);
    if (!byte) {
      out.resize(old_size);
      return false;
    }
    out += static_cast<char>(*byte);
    i += size;
  }
  return true;
}

std::optional<std::uint8_t> byte_fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  // The reference's number parser accepts a plus sign before the digit.
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<std::uint8_t>(high * 16 + low);
}

std::string byte_fallback_token(std::uint8_t byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

}  // namespace flotilla::tokenizer
