#include "flotilla/api/chat_response.h"

#include <cmath>

#include "flotilla/api/errors.h"
#include "flotilla/api/json_text.h"

namespace flotilla::api {
namespace {

void append_logprob_fields(std::string& out, const TokenLogprob& entry) {
  out += R"("token":)";
  append_json_string(out, entry.bytes);
  out += R"(,"logprob":)";
  const bool representable = std::isfinite(entry.logprob) && entry.logprob > kLogprobFloor;
  append_json_number(out, representable ? entry.logprob : kLogprobFloor);
  out += R"(,"bytes":[)";
  for (std::size_t i = 0; i < entry.bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_json_int(out, static_cast<unsigned char>(entry.bytes[i]));
  }
  out += ']';
}

}  // namespace

void append_logprob_entry(std::string& out, const TokenLogprob& entry) {
  out += '{';
  append_logprob_fields(out, entry);
  out += R"(,"top_logprobs":[)";
  for (std::size_t k = 0; k < entry.top.size(); ++k) {
    if (k > 0) out += ',';
    out += '{';
    append_logprob_fields(out, entry.top[k]);
    out += '}';
  }
  out += "]}";
}

namespace {

void append_logprobs(std::string& out, std::span<const TokenLogprob> entries) {
  out += R"({"content":[)";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ',';
    append_logprob_entry(out, entries[i]);
  }
  out += R"(],"refusal":null})";
}

}  // namespace

void append_id_list(std::string& out, std::span<const std::int32_t> ids) {
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_json_int(out, ids[i]);
  }
  out += ']';
}

void append_usage_object(std::string& out, const Usage& usage) {
  out += R"({"prompt_tokens":)";
  append_json_int(out, usage.prompt_tokens);
  out += R"(,"completion_tokens":)";
  append_json_int(out, usage.completion_tokens);
  out += R"(,"total_tokens":)";
  append_json_int(out, usage.prompt_tokens + usage.completion_tokens);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  append_json_int(out, usage.cached_tokens);
  out += R"(},"completion_tokens_details":{"reasoning_tokens":)";
  append_json_int(out, usage.reasoning_tokens);
  out += "}}";
}

void append_response_head(std::string& out, const ResponseHead& head, std::string_view object) {
  out += R"({"id":)";
  append_json_string(out, head.id);
  out += R"(,"object":)";
  append_json_string(out, object);
  out += R"(,"created":)";
  append_json_int(out, head.created);
  out += R"(,"model":)";
  append_json_string(out, head.model);
  out += R"(,"choices":[)";
}

namespace {

void append_message(std::string& out, const ChoiceOutput& choice) {
  out += R"({"role":"assistant","content":)";
  if (choice.content.empty() && !choice.tool_calls.empty()) {
    out += "null";
  } else {
    append_json_string(out, choice.content);
  }
  out += R"(,"refusal":null)";
  if (!choice.reasoning.empty()) {
    out += R"(,"reasoning_content":)";
    append_json_string(out, choice.reasoning);
  }
  if (!choice.tool_calls.empty()) {
    out += R"(,"tool_calls":[)";
    for (std::size_t i = 0; i < choice.tool_calls.size(); ++i) {
      const ToolCall& call = choice.tool_calls[i];
      if (i > 0) out += ',';
      out += R"({"id":)";
      append_json_string(out, call.id);
      out += R"(,"type":"function","function":{"name":)";
      append_json_string(out, call.name);
      out += R"(,"arguments":)";
      append_json_string(
          out, call.arguments.empty() ? std::string_view("{}") : std::string_view(call.arguments));
      out += "}}";
    }
    out += ']';
  }
  out += '}';
}

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
  }
  return "stop";
}

FinishReason finish_reason(bool cut_by_length, bool has_whole_calls) {
  if (cut_by_length) return FinishReason::kLength;
  return has_whole_calls ? FinishReason::kToolCalls : FinishReason::kStop;
}

std::string render_response(const ResponseHead& head, std::span<const ChoiceOutput> choices,
                            const Usage& usage) {
  std::string out;
  append_response_head(out, head, "chat.completion");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    out += R"({"index":)";
    append_json_int(out, static_cast<std::int64_t>(i));
    out += R"(,"message":)";
    append_message(out, choices[i]);
    out += R"(,"logprobs":)";
    if (head.logprobs) {
      append_logprobs(out, choices[i].logprobs);
    } else {
      out += "null";
    }
    out += R"(,"finish_reason":)";
    append_json_string(out, to_string(choices[i].finish_reason));
    if (head.return_token_ids) {
      out += R"(,"token_ids":)";
      append_id_list(out, choices[i].token_ids);
    }
    out += '}';
  }
  out += R"(],"usage":)";
  append_usage_object(out, usage);
  out += '}';
  return out;
}

ChunkWriter::ChunkWriter(ResponseHead head) : head_(std::move(head)), prefix_("data: ") {
  append_response_head(prefix_, head_, "chat.completion.chunk");
}

void ChunkWriter::open(std::string& out, int choice) const {
  out += prefix_;
  out += R"({"index":)";
  append_json_int(out, choice);
  out += R"(,"delta":{)";
}

void ChunkWriter::close(std::string& out, std::optional<FinishReason> reason,
                        const ChunkExtras& extras) const {
  out += R"(},"logprobs":)";
  if (head_.logprobs && !extras.logprobs.empty()) {
    append_logprobs(out, extras.logprobs);
  } else {
    out += "null";
  }
  out += R"(,"finish_reason":)";
  if (reason) {
    append_json_string(out, to_string(*reason));
  } else {
    out += "null";
  }
  if (head_.return_token_ids && !extras.token_ids.empty()) {
    out += R"(,"token_ids":)";
    append_id_list(out, extras.token_ids);
  }
  out += head_.include_usage ? R"(}],"usage":null})" : "}]}";
  out += "\n\n";
}

void ChunkWriter::append_role(std::string& out, int choice) const {
  open(out, choice);
  out += R"("role":"assistant","content":"")";
  close(out, std::nullopt, {});
}

void ChunkWriter::append_content(std::string& out, int choice, std::string_view text,
                                 const ChunkExtras& extras) const {
  open(out, choice);
  out += R"("content":)";
  append_json_string(out, text);
  close(out, std::nullopt, extras);
}

void ChunkWriter::append_reasoning(std::string& out, int choice, std::string_view text,
                                   const ChunkExtras& extras) const {
  open(out, choice);
  out += R"("reasoning_content":)";
  append_json_string(out, text);
  close(out, std::nullopt, extras);
}

void ChunkWriter::append_call_start(std::string& out, int choice, int index, const ToolCall& call,
                                    const ChunkExtras& extras) const {
  open(out, choice);
  out += R"("tool_calls":[{"index":)";
  append_json_int(out, index);
  out += R"(,"id":)";
  append_json_string(out, call.id);
  out += R"(,"type":"function","function":{"name":)";
  append_json_string(out, call.name);
  out += R"(,"arguments":)";
  append_json_string(out, call.arguments);
  out += "}}]";
  close(out, std::nullopt, extras);
}

void ChunkWriter::append_call_arguments(std::string& out, int choice, int index,
                                        std::string_view text, const ChunkExtras& extras) const {
  open(out, choice);
  out += R"("tool_calls":[{"index":)";
  append_json_int(out, index);
  out += R"(,"function":{"arguments":)";
  append_json_string(out, text);
  out += "}}]";
  close(out, std::nullopt, extras);
}

void ChunkWriter::append_finish(std::string& out, int choice, FinishReason reason,
                                const ChunkExtras& extras) const {
  open(out, choice);
  close(out, reason, extras);
}

void ChunkWriter::append_usage(std::string& out, const Usage& usage) const {
  out += prefix_;
  out += R"(],"usage":)";
  append_usage_object(out, usage);
  out += "}\n\n";
}

std::string error_frame(const Error& error) { return "data: " + render_error(error) + "\n\n"; }

}  // namespace flotilla::api
