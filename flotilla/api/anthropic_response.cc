#include "flotilla/api/anthropic_response.h"

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/api/errors.h"
#include "flotilla/api/json_text.h"
#include "flotilla/api/limits.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace {

// The ids of calls have the prefix that Anthropic's clients know.
std::string tool_use_id(std::string_view call_id) {
  constexpr std::string_view kOurs = "call_";
  if (call_id.starts_with(kOurs)) call_id.remove_prefix(kOurs.size());
  return "toolu_" + std::string(call_id);
}

// Cached tokens are counted apart; the sum is the prompt.
std::string usage_object(const Usage& usage) {
  std::string out;
  JsonObject(out)
      .number("input_tokens", std::max<std::int64_t>(0, usage.prompt_tokens - usage.cached_tokens))
      .number("cache_creation_input_tokens", 0)
      .number("cache_read_input_tokens", usage.cached_tokens)
      .number("output_tokens", usage.completion_tokens)
      .end();
  return out;
}

// The arguments of a call as an object: {} where it was cut and is none yet.
std::string_view input_object(const AnswerBlock& block) {
  const auto parsed =
      json::parse(block.text, {.max_bytes = block.text.size(), .max_depth = kMaxBodyDepth});
  return parsed.ok() && parsed->is_object() ? std::string_view(block.text) : "{}";
}

std::string block_object(const AnswerBlock& block) {
  std::string out;
  JsonObject object(out);
  switch (block.kind) {
    case AnswerBlock::Kind::kReasoning:
      object.text("type", "thinking").text("thinking", block.text).text("signature", block.id);
      break;
    case AnswerBlock::Kind::kText:
      object.text("type", "text").text("text", block.text);
      break;
    case AnswerBlock::Kind::kCall:
      object.text("type", "tool_use")
          .text("id", tool_use_id(block.call_id))
          .text("name", block.call_name)
          .raw("input", input_object(block));
      break;
  }
  object.end();
  return out;
}

void add_stop(JsonObject& object, const AnthropicStop& stop) {
  object.text("stop_reason", stop.reason);
  if (stop.reason == "stop_sequence") {
    object.text("stop_sequence", stop.sequence);
  } else {
    object.raw("stop_sequence", "null");
  }
}

JsonObject begin_event(std::string& out, std::string_view type) {
  out += "event: ";
  out += type;
  out += "\ndata: ";
  JsonObject event(out);
  event.text("type", type);
  return event;
}

void end_event(JsonObject& event, std::string& out) {
  event.end();
  out += "\n\n";
}

}  // namespace

AnthropicStop anthropic_stop(bool cut_by_length, bool has_calls, std::string matched_stop) {
  if (cut_by_length) return {"max_tokens"};
  if (!matched_stop.empty()) return {"stop_sequence", std::move(matched_stop)};
  return {has_calls ? "tool_use" : "end_turn"};
}

std::string render_anthropic_message(const AnthropicHead& head, std::span<const AnswerBlock> blocks,
                                     const AnthropicStop& stop, const Usage& usage) {
  std::string content = "[";
  for (const AnswerBlock& block : blocks) {
    if (content.size() > 1) content += ',';
    content += block_object(block);
  }
  content += ']';
  std::string out;
  JsonObject message(out);
  message.text("id", head.id)
      .text("type", "message")
      .text("role", "assistant")
      .text("model", head.model)
      .raw("content", content);
  add_stop(message, stop);
  message.raw("usage", usage_object(usage)).end();
  return out;
}

std::string render_token_count(std::int64_t tokens) {
  std::string out;
  JsonObject(out).number("input_tokens", tokens).end();
  return out;
}

void append_message_start(std::string& out, const AnthropicHead& head, std::int64_t prompt_tokens) {
  std::string message;
  JsonObject(message)
      .text("id", head.id)
      .text("type", "message")
      .text("role", "assistant")
      .text("model", head.model)
      .raw("content", "[]")
      .raw("stop_reason", "null")
      .raw("stop_sequence", "null")
      .raw("usage", usage_object({.prompt_tokens = prompt_tokens}))
      .end();
  JsonObject event = begin_event(out, "message_start");
  event.raw("message", message);
  end_event(event, out);
}

void append_block_start(std::string& out, std::size_t index, const AnswerBlock& block) {
  AnswerBlock empty = {.kind = block.kind, .call_id = block.call_id, .call_name = block.call_name};
  JsonObject event = begin_event(out, "content_block_start");
  event.number("index", static_cast<std::int64_t>(index)).raw("content_block", block_object(empty));
  end_event(event, out);
}

void append_block_delta(std::string& out, std::size_t index, AnswerBlock::Kind kind,
                        std::string_view text) {
  std::string delta;
  JsonObject object(delta);
  switch (kind) {
    case AnswerBlock::Kind::kReasoning:
      object.text("type", "thinking_delta").text("thinking", text);
      break;
    case AnswerBlock::Kind::kText:
      object.text("type", "text_delta").text("text", text);
      break;
    case AnswerBlock::Kind::kCall:
      object.text("type", "input_json_delta").text("partial_json", text);
      break;
  }
  object.end();
  JsonObject event = begin_event(out, "content_block_delta");
  event.number("index", static_cast<std::int64_t>(index)).raw("delta", delta);
  end_event(event, out);
}

void append_block_stop(std::string& out, std::size_t index, const AnswerBlock& block) {
  if (block.kind == AnswerBlock::Kind::kReasoning) {
    std::string delta;
    JsonObject(delta).text("type", "signature_delta").text("signature", block.id).end();
    JsonObject event = begin_event(out, "content_block_delta");
    event.number("index", static_cast<std::int64_t>(index)).raw("delta", delta);
    end_event(event, out);
  }
  JsonObject event = begin_event(out, "content_block_stop");
  event.number("index", static_cast<std::int64_t>(index));
  end_event(event, out);
}

void append_message_end(std::string& out, const AnthropicStop& stop, const Usage& usage) {
  std::string delta;
  JsonObject object(delta);
  add_stop(object, stop);
  object.end();
  JsonObject event = begin_event(out, "message_delta");
  event.raw("delta", delta).raw("usage", usage_object(usage));
  end_event(event, out);
  JsonObject last = begin_event(out, "message_stop");
  end_event(last, out);
}

void append_anthropic_error(std::string& out, const Error& error, std::string_view request_id) {
  out += "event: error\ndata: ";
  out += render_anthropic_error(anthropic_shape(error_shape(error)), error.message, request_id);
  out += "\n\n";
}

}  // namespace flotilla::api
