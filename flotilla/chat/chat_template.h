// Chat templates: the Jinja dialect that model publishers use. Immutable after compile(): safe from
// any thread.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/base/text_span.h"

namespace flotilla::chat {

struct RenderLimits {
  std::size_t max_steps = 20'000'000;        // evaluated nodes
  std::size_t max_output_bytes = 64u << 20;  // also bounds every intermediate string
};

// All pointers must outlive the call only.
struct RenderInput {
  const boost::json::value* messages =
      nullptr;  // array, as the client sent it (arguments of calls already objects)
  const boost::json::value* tools = nullptr;  // array or nullptr
  const boost::json::object* variables =
      nullptr;  // further globals such as enable_thinking; untrusted; or nullptr
  bool add_generation_prompt = true;
  std::string bos_token;         // trusted
  std::string eos_token;         // trusted
  std::int64_t render_time = 0;  // unix seconds, UTC; what strftime_now prints
};

class ChatTemplate {
 public:
  // Errors give line and column of `source`.
  static Result<std::shared_ptr<const ChatTemplate>> compile(std::string source);
  ~ChatTemplate();

  // A raise_exception becomes kInvalidArgument with the template's own sentence; other failures of
  // the template (undefined operations, limits) are kInvalidArgument too, with the line. Never
  // contains the template's source.
  Result<SpanText> render(const RenderInput& input, const RenderLimits& limits = {}) const;

  const std::string& source() const;

  struct Program;
  explicit ChatTemplate(std::unique_ptr<const Program> program);

 private:
  std::unique_ptr<const Program> program_;
};

// Templates for checkpoints that bring none: ChatML when the vocabulary has its markers, else
// role-prefixed text.
std::string_view chatml_template();
std::string_view plain_template();

}  // namespace flotilla::chat
