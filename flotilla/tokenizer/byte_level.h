// The byte-level alphabet: one printable character for each byte, so that any text is a sequence of
// letters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace flotilla::tokenizer {

// The character that stands for `byte`, in UTF-8; lives forever.
std::string_view byte_level_char(std::uint8_t byte);
// The byte that `c` stands for.
std::optional<std::uint8_t> byte_level_byte(char32_t c);
// Appends the letters for all bytes of `text`.
void append_byte_level(std::string& out, std::string_view text);
// Appends the bytes that `token` stands for, or returns false and appends nothing when a character
// of `token` is no letter of the alphabet.
bool append_byte_level_bytes(std::string& out, std::string_view token);
// The byte of a byte-fallback token such as "<0x0A>".
std::optional<std::uint8_t> byte_fallback_byte(std::string_view token);
// "<0x0A>" for 10.
std::string byte_fallback_token(std::uint8_t byte);

}  // namespace flotilla::tokenizer
