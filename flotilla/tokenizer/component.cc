#include "flotilla/tokenizer/component.h"

#include <boost/json.hpp>

#include "flotilla/json/json.h"
#include "flotilla/tokenizer/unicode.h"

namespace flotilla::tokenizer {
namespace bj = boost::json;

Result<std::string> component_type(const bj::value& component, std::string_view where) {
  return json::require_string(component, "type", where);
}

Error unsupported_component(std::string_view where, std::string_view type) {
  return Error{
      ErrorCode::kUnsupported,
      "tokenizer: " + std::string(where) + " of type '" + std::string(type) + "' is not supported",
      std::string(where)};
}

Result<Matcher> read_pattern(const bj::value& component, std::string_view where) {
  const bj::value* pattern = json::find(component, "pattern");
  if (pattern) {
    FLOTILLA_TRY(const auto text, json::get_string(*pattern, "String", where));
    // An empty string matches everywhere, which only the expression engine knows how to do.
    if (text) return text->empty() ? Matcher::generic_regex("") : Matcher::literal(*text);
    FLOTILLA_TRY(const auto regex, json::get_string(*pattern, "Regex", where));
    if (regex) return Matcher::regex(*regex);
  }
  return Error{ErrorCode::kInvalidArgument,
               "tokenizer: " + std::string(where) + ".pattern must have 'String' or 'Regex'",
               std::string(where)};
}

Result<const bj::array*> read_components(const bj::value& component, std::string_view key,
                                         std::string_view where) {
  const bj::value* list = json::find(component, key);
  if (!list || !list->is_array()) {
    const std::string path = json::join_path(where, key);
    return Error{ErrorCode::kInvalidArgument, "tokenizer: '" + path + "' must be an array", path};
  }
  return &list->get_array();
}

Result<char32_t> read_char(const bj::value& component, std::string_view key,
                           std::string_view where) {
  FLOTILLA_TRY(const std::string text, json::require_string(component, key, where));
  if (!text.empty() && text.size() <= 4) {
    char bytes[4] = {};
    text.copy(bytes, sizeof bytes);
    const auto [c, size] = decode_char(bytes);
    if (size == text.size()) return c;
  }
  const std::string path = json::join_path(where, key);
  return Error{ErrorCode::kInvalidArgument, "tokenizer: '" + path + "' must be one character",
               path};
}

}  // namespace flotilla::tokenizer
