#include "flotilla/api/responses_response.h"

#include "flotilla/api/errors.h"
#include "flotilla/api/json_text.h"

namespace flotilla::api {
namespace {

using Kind = AnswerBlock::Kind;

std::string_view to_string(ResponsesStatus status) {
  switch (status) {
    case ResponsesStatus::kInProgress:
      return "in_progress";
    case ResponsesStatus::kCompleted:
      return "completed";
    case ResponsesStatus::kIncomplete:
      return "incomplete";
    case ResponsesStatus::kFailed:
      return "failed";
  }
  return "failed";
}

std::string usage_object(const Usage& usage) {
  std::string cached, reasoning, out;
  JsonObject(cached).number("cached_tokens", usage.cached_tokens).end();
  JsonObject(reasoning).number("reasoning_tokens", usage.reasoning_tokens).end();
  JsonObject(out)
      .number("input_tokens", usage.prompt_tokens)
      .raw("input_tokens_details", cached)
      .number("output_tokens", usage.completion_tokens)
      .raw("output_tokens_details", reasoning)
      .number("total_tokens", usage.prompt_tokens + usage.completion_tokens)
      .end();
  return out;
}

std::string logprob_list(std::span<const TokenLogprob> entries) {
  std::string out = "[";
  for (const TokenLogprob& entry : entries) {
    if (out.size() > 1) out += ',';
    append_logprob_entry(out, entry);
  }
  return out + ']';
}

// The one part of a message or of thoughts.
std::string part_object(const AnswerBlock& block) {
  std::string out;
  JsonObject part(out);
  if (block.kind == Kind::kReasoning) {
    part.text("type", "reasoning_text").text("text", block.text);
  } else {
    part.text("type", "output_text")
        .text("text", block.text)
        .raw("annotations", "[]")
        .raw("logprobs", logprob_list(block.logprobs));
  }
  part.end();
  return out;
}

// `status` is the item's; parts are left out of an item that was just opened.
std::string item_object(const AnswerBlock& block, std::string_view status, bool has_parts) {
  const std::string content = has_parts ? "[" + part_object(block) + "]" : "[]";
  std::string out;
  JsonObject item(out);
  item.text("id", block.id);
  switch (block.kind) {
    case Kind::kReasoning:
      item.text("type", "reasoning").raw("summary", "[]").raw("content", content);
      break;
    case Kind::kText:
      item.text("type", "message").text("role", "assistant").raw("content", content);
      break;
    case Kind::kCall:
      item.text("type", "function_call")
          .text("call_id", block.call_id)
          .text("name", block.call_name)
          .text("arguments", block.text);
      break;
  }
  item.text("status", status).end();
  return out;
}

std::string_view status_of(const AnswerBlock& block) {
  return block.complete ? "completed" : "incomplete";
}

// {"item_id", "output_index"}, and "content_index" where the block has parts; no closing brace.
std::string place(std::size_t index, const AnswerBlock& block) {
  std::string out;
  JsonObject object(out);
  object.text("item_id", block.id).number("output_index", static_cast<std::int64_t>(index));
  if (block.kind != Kind::kCall) object.number("content_index", 0);
  return out.substr(1);
}

std::string with_member(std::string members, std::string_view key, std::string_view json) {
  members += ",\"";
  members += key;
  members += "\":";
  members += json;
  return members;
}

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string item_event(std::size_t index, const std::string& item) {
  return "\"output_index\":" + std::to_string(index) + ",\"item\":" + item;
}

std::string_view delta_event(Kind kind) {
  switch (kind) {
    case Kind::kReasoning:
      return "response.reasoning_text.delta";
    case Kind::kText:
      return "response.output_text.delta";
    case Kind::kCall:
      return "response.function_call_arguments.delta";
  }
  return {};
}

}  // namespace

std::string render_responses(const ResponsesHead& head, ResponsesStatus status,
                             std::span<const AnswerBlock> blocks, const Usage* usage,
                             const Error* error) {
  std::string output = "[";
  for (const AnswerBlock& block : blocks) {
    if (output.size() > 1) output += ',';
    output += item_object(block, status_of(block), true);
  }
  output += ']';
  std::string failure = "null";
  if (error != nullptr) {
    failure.clear();
    JsonObject(failure)
        .text("code", error_shape(*error).code)
        .text("message", error->message)
        .end();
  }
  std::string out;
  JsonObject response(out);
  response.text("id", head.id)
      .text("object", "response")
      .number("created_at", head.created)
      .text("status", to_string(status))
      .raw("error", failure)
      .raw("incomplete_details",
           status == ResponsesStatus::kIncomplete ? R"({"reason":"max_output_tokens"})" : "null")
      .text("model", head.model)
      .raw("output", output)
      .raw("usage", usage != nullptr ? usage_object(*usage) : "null");
  out += ',';
  out += head.settings;
  response.end();
  return out;
}

void ResponsesWriter::append(std::string& out, std::string_view type, std::string_view members) {
  out += "event: ";
  out += type;
  out += R"(
data: {"type":")";
  out += type;
  out += R"(","sequence_number":)";
  append_json_int(out, next_number_++);
  if (!members.empty()) out += ',';
  out += members;
  out += "}\n\n";
}

void ResponsesWriter::append_response(std::string& out, std::string_view type,
                                      std::string_view response) {
  append(out, type, "\"response\":" + std::string(response));
}

void ResponsesWriter::append_start(std::string& out) {
  const std::string response =
      render_responses(head_, ResponsesStatus::kInProgress, {}, nullptr, nullptr);
  append_response(out, "response.created", response);
  append_response(out, "response.in_progress", response);
}

void ResponsesWriter::append_open(std::string& out, std::size_t index, const AnswerBlock& block) {
  AnswerBlock empty = block;
  empty.text.clear();
  empty.logprobs.clear();
  append(out, "response.output_item.added",
         item_event(index, item_object(empty, "in_progress", false)));
  if (block.kind == Kind::kCall) return;
  append(out, "response.content_part.added",
         with_member(place(index, block), "part", part_object(empty)));
}

void ResponsesWriter::append_delta(std::string& out, std::size_t index, const AnswerBlock& block,
                                   std::string_view text, std::span<const TokenLogprob> logprobs) {
  std::string members = with_member(place(index, block), "delta", quoted(text));
  if (block.kind == Kind::kText)
    members = with_member(std::move(members), "logprobs", logprob_list(logprobs));
  append(out, delta_event(block.kind), members);
}

void ResponsesWriter::append_close(std::string& out, std::size_t index, const AnswerBlock& block) {
  const std::string at = place(index, block);
  switch (block.kind) {
    case Kind::kReasoning:
      append(out, "response.reasoning_text.done", with_member(at, "text", quoted(block.text)));
      break;
    case Kind::kText:
      append(out, "response.output_text.done",
             with_member(with_member(at, "text", quoted(block.text)), "logprobs",
                         logprob_list(block.logprobs)));
      break;
    case Kind::kCall:
      append(out, "response.function_call_arguments.done",
             with_member(with_member(at, "name", quoted(block.call_name)), "arguments",
                         quoted(block.text)));
      break;
  }
  if (block.kind != Kind::kCall)
    append(out, "response.content_part.done", with_member(at, "part", part_object(block)));
  append(out, "response.output_item.done",
         item_event(index, item_object(block, status_of(block), true)));
}

void ResponsesWriter::append_end(std::string& out, ResponsesStatus status,
                                 std::span<const AnswerBlock> blocks, const Usage& usage) {
  append_response(
      out, status == ResponsesStatus::kIncomplete ? "response.incomplete" : "response.completed",
      render_responses(head_, status, blocks, &usage, nullptr));
}

void ResponsesWriter::append_error(std::string& out, std::span<const AnswerBlock> blocks,
                                   const Error& error) {
  std::string members = "\"code\":" + quoted(error_shape(error).code);
  members = with_member(std::move(members), "message", quoted(error.message));
  members =
      with_member(std::move(members), "param", error.param.empty() ? "null" : quoted(error.param));
  append(out, "error", members);
  append_response(out, "response.failed",
                  render_responses(head_, ResponsesStatus::kFailed, blocks, nullptr, &error));
}

}  // namespace flotilla::api
