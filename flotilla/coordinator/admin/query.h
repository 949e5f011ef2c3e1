// The query of a URL.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace flotilla::coordinator {

// The first value of `name` in "a=1&b=%2F", decoded ('+' is a blank); nullopt when it is absent or
// badly encoded.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

}  // namespace flotilla::coordinator
