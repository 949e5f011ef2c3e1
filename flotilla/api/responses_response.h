// What a response of OpenAI's Responses API looks like on the wire: whole, and as events of a
// stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "flotilla/api/answer_block.h"

namespace flotilla::api {

struct ResponsesHead {
  std::string id;  // "resp_..."
  std::string model;
  std::int64_t created = 0;  // unix seconds
  std::string settings;      // see ResponsesRequest
  bool logprobs = false;
};

enum class ResponsesStatus { kInProgress, kCompleted, kIncomplete, kFailed };

// The whole object. `usage` is null while nothing is known; `error` with kFailed.
std::string render_responses(const ResponsesHead& head, ResponsesStatus status,
                             std::span<const AnswerBlock> blocks, const Usage* usage,
                             const Error* error);

// Frames of a stream; each takes the next number of the sequence.
class ResponsesWriter {
 public:
  explicit ResponsesWriter(ResponsesHead head) : head_(std::move(head)) {}

  const ResponsesHead& head() const { return head_; }
  void append_start(std::string& out);
  void append_open(std::string& out, std::size_t index, const AnswerBlock& block);
  void append_delta(std::string& out, std::size_t index, const AnswerBlock& block,
                    std::string_view text, std::span<const TokenLogprob> logprobs);
  void append_close(std::string& out, std::size_t index, const AnswerBlock& block);
  // response.completed, .incomplete
  void append_end(std::string& out, ResponsesStatus status, std::span<const AnswerBlock> blocks,
                  const Usage& usage);
  // An `error` event, which clients raise, then response.failed.
  void append_error(std::string& out, std::span<const AnswerBlock> blocks, const Error& error);

 private:
  void append(std::string& out, std::string_view type, std::string_view members);
  void append_response(std::string& out, std::string_view type, std::string_view response);

  const ResponsesHead head_;
  std::int64_t next_number_ = 0;
};

}  // namespace flotilla::api
