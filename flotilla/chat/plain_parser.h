// Models without a syntax of their own: all text is the answer.
#pragma once

#include <memory>

#include "flotilla/chat/output_parser.h"

namespace flotilla::chat {

std::unique_ptr<OutputParser> make_plain_parser();

}  // namespace flotilla::chat
