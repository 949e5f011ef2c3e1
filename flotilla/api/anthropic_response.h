// What a message of Anthropic's API looks like on the wire: whole, and as events of a stream.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "flotilla/api/answer_block.h"

namespace flotilla::api {

struct AnthropicHead {
  std::string id;  // "msg_..."
  std::string model;
};

struct AnthropicStop {
  std::string_view reason;    // "end_turn", "max_tokens", "stop_sequence" or "tool_use"
  std::string sequence = {};  // with "stop_sequence"
};
AnthropicStop anthropic_stop(bool cut_by_length, bool has_calls, std::string matched_stop);

std::string render_anthropic_message(const AnthropicHead& head, std::span<const AnswerBlock> blocks,
                                     const AnthropicStop& stop, const Usage& usage);
std::string render_token_count(std::int64_t tokens);

// Frames of a stream, appended to `out`.
void append_message_start(std::string& out, const AnthropicHead& head, std::int64_t prompt_tokens);
void append_block_start(std::string& out, std::size_t index, const AnswerBlock& block);
void append_block_delta(std::string& out, std::size_t index, AnswerBlock::Kind kind,
                        std::string_view text);
// Thoughts are signed before they end.
void append_block_stop(std::string& out, std::size_t index, const AnswerBlock& block);
void append_message_end(std::string& out, const AnthropicStop& stop, const Usage& usage);
void append_anthropic_error(std::string& out, const Error& error, std::string_view request_id);

inline constexpr std::string_view kPingFrame = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

}  // namespace flotilla::api
