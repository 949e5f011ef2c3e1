// One answer in the terminal: builds the job from messages, streams the text, collects the message
// for the history.
#pragma once

#include <atomic>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::apps {

struct AnswerOptions {
  std::string text;  // continue this instead of answering messages: no template
  bool thinking = false;
  bool raw = false;  // print the completion token for token, control tokens included; greedy unless
                     // told otherwise
  std::int64_t max_tokens = 0;  // 0: to the context's end
  std::optional<double> temperature, top_p;
  std::optional<std::int64_t> top_k;
  std::optional<std::uint64_t> seed;
};

struct Answer {
  boost::json::object message;  // the assistant's turn
  engine::Finish finish;
  double seconds_to_first_token = 0;
  double decode_seconds = 0;  // after the first token
};

// Streams to standard output. `interrupted` (set by a signal handler) cancels the answer; what was
// written stays.
Result<Answer> stream_answer(engine::TextEngine& engine, const boost::json::array& messages,
                             const boost::json::value& tools, const AnswerOptions& options,
                             const std::atomic<bool>& interrupted);

// "12 tokens, 85.3 tokens/s, first after 0.02 s"
std::string speed_line(const Answer& answer);

}  // namespace flotilla::apps
