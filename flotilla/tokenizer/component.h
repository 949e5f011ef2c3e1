// Reading the components (normalizer, pre-tokenizer, decoder, ...) out of tokenizer.json.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/tokenizer/matcher.h"

namespace flotilla::tokenizer {

// "NFC" of {"type": "NFC"}. `where` is the path of the component for messages.
Result<std::string> component_type(const boost::json::value& component, std::string_view where);
// kUnsupported naming the path and the type.
Error unsupported_component(std::string_view where, std::string_view type);
// The member "pattern": {"String": "..."} or {"Regex": "..."}.
Result<Matcher> read_pattern(const boost::json::value& component, std::string_view where);
// The non-empty array under `key`, or an error; components of a Sequence.
Result<const boost::json::array*> read_components(const boost::json::value& component,
                                                  std::string_view key, std::string_view where);
// A string of one character.
Result<char32_t> read_char(const boost::json::value& component, std::string_view key,
                           std::string_view where);

// Sequences may nest; deeper ones than this are refused.
inline constexpr int kMaxNesting = 16;

}  // namespace flotilla::tokenizer
