// The conversation in the terminal.
#pragma once

#include <boost/json/value.hpp>

#include "apps/flotilla/answer.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::apps {

// Reads lines until Ctrl-D or /exit and answers each, keeping the history. Ctrl-C stops an answer,
// not the program. `messages` begins the history (a system message, say). Returns the exit code.
int chat_loop(engine::TextEngine& engine, boost::json::array messages,
              const boost::json::value& tools, AnswerOptions options);

// Set by SIGINT once installed.
std::atomic<bool>& interrupt_flag();
void install_interrupt_handler();

}  // namespace flotilla::apps
