// Translates the regular expressions of tokenizer.json, which are written for Oniguruma (Ruby
// syntax, UTF-8), into PCRE2 syntax with the same meaning. Where no such expression exists the
// error is kUnsupported and names the part.
#pragma once

#include <string>
#include <string_view>

#include "flotilla/base/result.h"

namespace flotilla::tokenizer {
Result<std::string> to_pcre2_syntax(std::string_view pattern);
}  // namespace flotilla::tokenizer
