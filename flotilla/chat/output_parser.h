// What a model writes, separated as it streams: answer, reasoning, tool calls. One parser per
// generation, one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"

namespace flotilla::chat {

enum class Channel { kContent, kReasoning, kToolCall };

// A piece of output. For kToolCall: `call_index` counts calls from 0; `call_name` is set on the
// first piece of a call and empty on later ones; `text` is the next part of its arguments, a JSON
// text whose parts join to a whole object.
struct OutputDelta {
  Channel channel = Channel::kContent;
  std::string text;
  int call_index = -1;
  std::string call_name = {};
  bool operator==(const OutputDelta&) const = default;
};

class OutputParser {
 public:
  virtual ~OutputParser() = default;

  // Takes the next piece. `special` is the literal text of a control token (`<|channel>`), else the
  // detokenised text; exactly one of the two is not empty. Joined output does not depend on how the
  // text was cut.
  virtual std::vector<OutputDelta> push(std::string_view text, std::string_view special) = 0;

  // The generation ended. Releases what is held back. A call that the model did not finish stays
  // open: its arguments are what was written, and no JSON yet. What could not be read as a call is
  // surfaced as content, never dropped.
  virtual std::vector<OutputDelta> finish() = 0;

  virtual int num_calls() const = 0;
  // True between the start and the end of a call: the text is being withheld or streamed as
  // arguments.
  virtual bool inside_call() const = 0;
};

enum class OutputSyntax { kPlain, kGemma4 };

// How a template's model talks, recognised from the markers in the template's source.
OutputSyntax detect_output_syntax(std::string_view template_source);

// `prompt_tail` is the end of the rendered prompt: a prompt that ends inside an open thought starts
// in reasoning.
std::unique_ptr<OutputParser> make_output_parser(OutputSyntax syntax, std::string_view prompt_tail);

}  // namespace flotilla::chat
