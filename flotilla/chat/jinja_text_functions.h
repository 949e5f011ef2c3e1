// Operations on texts that filters and methods share. All keep the marks of the characters they
// keep.
#pragma once

#include <cstdint>
#include <string_view>

#include "flotilla/chat/jinja_runtime.h"

namespace flotilla::chat {

enum class Side { kBoth, kLeft, kRight };
// Strips white space, or the characters of `chars` when it is not null.
MarkedText strip_text(Runtime& runtime, const MarkedText& text, Side side,
                      const std::string_view* chars);
MarkedText replace_text(Runtime& runtime, const MarkedText& text, const MarkedText& from,
                        const MarkedText& to, std::int64_t count);
// Python's split and rsplit; `separator` null splits at white space; `count` < 0 has no limit.
Value split_text(Runtime& runtime, const MarkedText& text, const std::string_view* separator,
                 std::int64_t count, bool from_right);
MarkedText join_texts(Runtime& runtime, const std::vector<Value>& items,
                      const MarkedText& separator);

enum class Casing { kUpper, kLower, kTitleWords, kPythonTitle, kCapitalize, kSwap };
MarkedText change_case(Runtime& runtime, const MarkedText& text, Casing casing);
// `width` counts characters; side kBoth centers.
MarkedText pad_text(Runtime& runtime, const MarkedText& text, std::int64_t width,
                    std::string_view fill, Side text_side);
std::vector<MarkedText> split_lines(Runtime& runtime, const MarkedText& text, bool keep_ends);
// str.format with positional and named fields, without format specifications.
MarkedText format_braces(Runtime& runtime, const MarkedText& pattern, const Args& args);
// The % operator: %s %r %d %i %f %x %%, with flags, width and precision.
MarkedText format_percent(Runtime& runtime, const MarkedText& pattern, const Args& args);

}  // namespace flotilla::chat
