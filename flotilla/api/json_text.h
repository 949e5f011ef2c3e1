// Writing JSON straight into a string, for the token path: no value tree, and never invalid UTF-8
// in the output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flotilla::api {

// Appends `text` quoted and escaped. Bytes that are no UTF-8 become U+FFFD, so the result is JSON
// whatever came in.
void append_json_string(std::string& out, std::string_view text);

void append_json_int(std::string& out, std::int64_t value);

// Shortest form that reads back as the same number; `value` must be finite.
void append_json_number(std::string& out, double value);

}  // namespace flotilla::api
