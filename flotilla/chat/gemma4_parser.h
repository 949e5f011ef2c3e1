// Gemma 4: thoughts between <|channel> and <channel|>, calls between <|tool_call> and <tool_call|>.
#pragma once

#include <memory>
#include <string_view>

#include "flotilla/chat/output_parser.h"

namespace flotilla::chat {

// Whether the answer begins inside a thought that the prompt opened.
bool ends_in_gemma4_thought(std::string_view prompt_tail);

std::unique_ptr<OutputParser> make_gemma4_parser(std::string_view prompt_tail);

}  // namespace flotilla::chat
