// Characters of UTF-8 text as Python's str sees them. Bytes that are no UTF-8 count as one
// character each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace flotilla::chat {

// Reads the character at `at` (< text.size()) and moves `at` behind it.
char32_t next_char(std::string_view text, std::size_t& at);
std::size_t count_chars(std::string_view text);
// Byte offset of the character with number `index`, or text.size().
std::size_t char_offset(std::string_view text, std::size_t index);

bool is_space_char(char32_t c);
// Length in bytes of the white space character at `at`, or 0.
std::size_t space_at(std::string_view text, std::size_t at);
// Offset at which the white space at the end of `text` starts; its end when there is none.
std::size_t trailing_space_start(std::string_view text);

void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);

bool is_letter(char32_t c);
bool is_decimal(char32_t c);
bool is_alphanumeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_printable(char32_t c);

}  // namespace flotilla::chat
