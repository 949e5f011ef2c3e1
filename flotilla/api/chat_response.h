// What a chat completion looks like on the wire: the whole answer, and the chunks of a stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/error.h"

namespace flotilla::api {

struct Usage {
  std::int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, reasoning_tokens = 0;
};

struct TokenLogprob {
  std::int32_t id = 0;
  double logprob = 0;  // natural log; written as kLogprobFloor when lower or not finite
  std::string bytes;   // exact bytes of the token, perhaps a part of a character
  std::vector<TokenLogprob> top = {};
};
inline constexpr double kLogprobFloor = -9999.0;  // JSON has no infinity

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments = {};  // a JSON text; empty counts as {}
};

enum class FinishReason { kStop, kLength, kToolCalls };
std::string_view to_string(FinishReason reason);

// `tool_calls` if and only if the answer has calls, all whole, and ended by itself; a cut call is
// `length`.
FinishReason finish_reason(bool cut_by_length, bool has_whole_calls);

// What stays the same over all parts of one answer.
struct ResponseHead {
  std::string id;  // "chatcmpl-..."
  std::string model;
  std::int64_t created = 0;  // unix seconds
  bool logprobs = false;
  bool return_token_ids = false;
  bool include_usage = false;  // streams: a last chunk with the usage, `usage: null` in the others
};

// Parts that other APIs have too.
// {"token","logprob","bytes","top_logprobs"}
void append_logprob_entry(std::string& out, const TokenLogprob& entry);
void append_response_head(std::string& out, const ResponseHead& head, std::string_view object);
void append_usage_object(std::string& out, const Usage& usage);
void append_id_list(std::string& out, std::span<const std::int32_t> ids);

struct ChoiceOutput {
  std::string content = {};
  std::string reasoning = {};
  std::vector<ToolCall> tool_calls = {};
  std::vector<TokenLogprob> logprobs = {};
  std::vector<std::int32_t> token_ids = {};
  FinishReason finish_reason = FinishReason::kStop;
};

// The body of an answer that is not streamed. Choices in order of their index.
std::string render_response(const ResponseHead& head, std::span<const ChoiceOutput> choices,
                            const Usage& usage);

// What a chunk may carry besides its delta.
struct ChunkExtras {
  std::span<const TokenLogprob> logprobs = {};
  std::span<const std::int32_t> token_ids = {};
};

// Appends frames of a stream ("data: {...}\n\n") to a string. Immutable after construction.
class ChunkWriter {
 public:
  explicit ChunkWriter(ResponseHead head);

  // The first chunk of a choice.
  void append_role(std::string& out, int choice) const;
  void append_content(std::string& out, int choice, std::string_view text,
                      const ChunkExtras& extras) const;
  void append_reasoning(std::string& out, int choice, std::string_view text,
                        const ChunkExtras& extras) const;
  // Once for each call, with id and name; its arguments follow in pieces that carry neither.
  void append_call_start(std::string& out, int choice, int index, const ToolCall& call,
                         const ChunkExtras& extras) const;
  void append_call_arguments(std::string& out, int choice, int index, std::string_view text,
                             const ChunkExtras& extras) const;
  // The last chunk of a choice.
  void append_finish(std::string& out, int choice, FinishReason reason,
                     const ChunkExtras& extras) const;
  // After the last choice, only with include_usage.
  void append_usage(std::string& out, const Usage& usage) const;

 private:
  void open(std::string& out, int choice) const;
  void close(std::string& out, std::optional<FinishReason> reason, const ChunkExtras& extras) const;

  ResponseHead head_;
  std::string prefix_;  // up to and including the opening of `choices`
};

inline constexpr std::string_view kDoneFrame = "data: [DONE]\n\n";
inline constexpr std::string_view kKeepAliveFrame = ": keep-alive\n\n";
// A failure after the status was sent; nothing follows it, no [DONE] either.
std::string error_frame(const Error& error);

}  // namespace flotilla::api
