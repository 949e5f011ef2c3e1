// Hand-written matchers for the split patterns of widespread vocabularies. Each does one pass over
// the text and equals its regular expression; the tests compare them with PCRE2.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace flotilla::tokenizer {

// Finds the next match at or after *begin (< text.size()) in well-formed UTF-8: sets *begin and
// returns the end, which is greater. Sets *begin to npos when there is none.
using Scanner = std::size_t (*)(std::string_view text, std::size_t* begin);

// The scanner for a pattern as it is spelled in the file; nullptr when there is none.
Scanner find_scanner(std::string_view pattern);
// Every pattern that has one.
std::vector<std::string_view> scanner_patterns();

// The pattern of GPT-2, which the ByteLevel pre-tokenizer implies.
extern const std::string_view kGpt2Pattern;

}  // namespace flotilla::tokenizer
