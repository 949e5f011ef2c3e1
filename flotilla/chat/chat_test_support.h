// Shared by the tests of this folder.
#pragma once

#include <boost/json.hpp>
#include <ctime>
#include <string>

#include "flotilla/chat/chat_template.h"
#include "flotilla/json/json.h"

namespace flotilla::chat {

// Processor time of this process: bounds on it hold on a busy machine too.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

inline std::string joined(const SpanText& spans) {
  std::string text;
  for (const TextSpan& span : spans) text += span.text;
  return text;
}

// Renders `source` with messages given as JSON.
inline Result<SpanText> render_spans(std::string source, std::string_view messages,
                                     const boost::json::object& variables = {},
                                     const RenderLimits& limits = {}) {
  FLOTILLA_TRY(const auto compiled, ChatTemplate::compile(std::move(source)));
  FLOTILLA_TRY(const boost::json::value parsed, json::parse(messages));
  RenderInput input;
  input.messages = &parsed;
  input.variables = &variables;
  return compiled->render(input, limits);
}

inline Result<std::string> render_text(std::string source, std::string_view messages,
                                       const boost::json::object& variables = {},
                                       const RenderLimits& limits = {}) {
  FLOTILLA_TRY(const SpanText spans, render_spans(std::move(source), messages, variables, limits));
  return joined(spans);
}

}  // namespace flotilla::chat
