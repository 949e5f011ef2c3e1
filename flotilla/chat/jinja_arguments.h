// Reading the arguments of native functions; failures name the function.
#pragma once

#include <cstdint>
#include <string_view>

#include "flotilla/chat/jinja_runtime.h"

namespace flotilla::chat {

std::int64_t int_argument(Runtime& runtime, const Args& args, std::size_t position,
                          std::string_view name, std::int64_t fallback);
bool bool_argument(const Args& args, std::size_t position, std::string_view name, bool fallback);
// A text, or the text of another value; `fallback` when absent or none.
MarkedText text_argument(Runtime& runtime, const Args& args, std::size_t position,
                         std::string_view name, const MarkedText& fallback = {});
// Fails when absent.
const Value& required_argument(Runtime& runtime, const Args& args, std::size_t position,
                               std::string_view name);

}  // namespace flotilla::chat
