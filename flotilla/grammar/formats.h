// Values of "format" in JSON schema, each as a regular expression of the texts that are written.
// Every text is valid for the format; of a few formats only the usual form is written, as said
// beside them.
#pragma once

#include <string_view>

namespace flotilla::grammar {

// Empty when the format is not known.
std::string_view format_pattern(std::string_view format);
// A format of the JSON schema standard that cannot be enforced. Other unknown names are
// annotations, as the standard has it.
bool is_unsupported_format(std::string_view format);

}  // namespace flotilla::grammar
