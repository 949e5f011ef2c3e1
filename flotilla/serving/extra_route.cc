#include "flotilla/serving/extra_route.h"

namespace flotilla::serving {
namespace {

// The text up to the next slash; `rest` loses it and the slash.
std::string_view take_segment(std::string_view& rest) {
  const std::size_t slash = rest.find('/');
  const std::string_view segment = rest.substr(0, slash);
  rest = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash + 1);
  return segment;
}

}  // namespace

bool path_matches(std::string_view pattern, std::string_view path) {
  while (!pattern.empty() && !path.empty()) {
    const bool pattern_goes_on = pattern.find('/') != std::string_view::npos;
    const bool path_goes_on = path.find('/') != std::string_view::npos;
    const std::string_view wanted = take_segment(pattern), given = take_segment(path);
    const bool any = wanted.starts_with('{') && wanted.ends_with('}');
    if (any ? given.empty() : wanted != given) return false;
    if (pattern_goes_on != path_goes_on) return false;
  }
  return pattern.empty() && path.empty();
}

}  // namespace flotilla::serving
