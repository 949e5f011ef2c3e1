// Scalars of Gemma 4's call notation as JSON.
#pragma once

#include <string>
#include <string_view>

namespace flotilla::chat {

// Appends one byte of a text, escaped as JSON wants it.
void append_json_character(std::string& out, char c);
std::string json_quoted(std::string_view text);
// true, false, null (also as Python writes them), a JSON number, else a text.
std::string json_scalar(std::string_view text);

}  // namespace flotilla::chat
