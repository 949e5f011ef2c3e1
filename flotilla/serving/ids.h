// Names of requests and answers.
#pragma once

#include <string>
#include <string_view>

namespace flotilla::serving {

// `prefix` and 128 random bits in hexadecimal.
std::string random_id(std::string_view prefix);

// True for an id that a client may choose: 1 to 128 of A-Z a-z 0-9 . _ : -
bool is_request_id(std::string_view id);

}  // namespace flotilla::serving
