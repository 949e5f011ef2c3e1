#include "flotilla/api/responses_request.h"

#include <boost/json.hpp>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/api/responses_input.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

// Everything that would need a memory between requests, or more than a model.
constexpr UnsupportedField kUnsupported[] = {{"previous_response_id", Neutral::kNone},
                                             {"conversation", Neutral::kNone},
                                             {"prompt", Neutral::kNone},
                                             {"store", Neutral::kFalse},
                                             {"background", Neutral::kFalse}};

Status refuse_state(const bj::value& body) {
  Status status = refuse_unless_neutral(body, kUnsupported);
  if (status.ok()) return status;
  Error error = std::move(status).error();
  error.message += ": responses are not stored; send the whole conversation in 'input'";
  return error;
}

// A function keeps the form of the request. Hosted tools, and custom ones, are not for us to run:
// the model is not told of them.
Status parse_response_tools(const bj::value& body, ToolList& list) {
  const bj::value* tools = json::find(body, "tools");
  if (tools == nullptr) return ok_status();
  FLOTILLA_TRY(const bj::array* items, tool_array(*tools, "tools"));
  for (std::size_t i = 0; i < items->size(); ++i) {
    const std::string where = index_path("tools", i);
    FLOTILLA_TRY(const std::string type, json::require_string((*items)[i], "type", where));
    if (type != "function") continue;
    bj::object function;
    for (const std::string_view key : {"name", "description", "parameters", "strict"}) {
      if (const bj::value* value = json::find((*items)[i], key)) function[key] = *value;
    }
    FLOTILLA_TRY_STATUS(list.add(function, where));
  }
  return ok_status();
}

Status parse_response_choice(const bj::value& body, ToolList& list, ChatRequest& request) {
  const std::string field = "tool_choice";
  const bj::value* choice = json::find(body, field);
  if (choice == nullptr) return ok_status();
  if (choice->is_string()) {
    return choose_word(field, std::string_view(choice->get_string()), list, request);
  }
  if (!choice->is_object()) return invalid(field, "'tool_choice' must be a string or an object");
  FLOTILLA_TRY(const std::string type, json::require_string(*choice, "type", field));
  if (type == "allowed_tools") return keep_allowed(*choice, field, list, request);
  if (type != "function") {
    return unsupported(field + ".type", "'tool_choice.type' must be 'function' or 'allowed_tools'");
  }
  FLOTILLA_TRY(std::string name, json::require_string(*choice, "name", field));
  return choose_function(field + ".name", std::move(name), list, request);
}

Status parse_tools_of_response(const bj::value& body, ChatRequest& request) {
  ToolList list;
  FLOTILLA_TRY_STATUS(parse_response_tools(body, list));
  request.tool_choice = list.tools.empty() ? "none" : "auto";
  FLOTILLA_TRY_STATUS(parse_response_choice(body, list, request));
  take_tools(std::move(list), request);
  FLOTILLA_TRY(const auto parallel, json::get_bool(body, "parallel_tool_calls"));
  request.parallel_tool_calls = parallel.value_or(true);
  return ok_status();
}

Status parse_text(const bj::value& body, ChatRequest& request) {
  const bj::value* text = json::find(body, "text");
  if (text == nullptr) return ok_status();
  if (!text->is_object()) return invalid("text", "'text' must be an object");
  const bj::value* format = json::find(*text, "format");
  if (format == nullptr) return ok_status();
  const std::string where = "text.format";
  if (!format->is_object()) return invalid(where, "'text.format' must be an object");
  FLOTILLA_TRY(const std::string type, json::require_string(*format, "type", where));
  if (type == "text") return ok_status();
  if (type == "json_object") {
    request.output_format = output_form("json_object", nullptr, where);
    return ok_status();
  }
  if (type != "json_schema") {
    return invalid(where + ".type",
                   "'text.format.type' must be 'text', 'json_object' or 'json_schema'");
  }
  const bj::value* schema = json::find(*format, "schema");
  if (schema == nullptr) return invalid(where + ".schema", "'text.format.schema' is missing");
  FLOTILLA_TRY(request.output_format, schema_form(*schema, where + ".schema"));
  return ok_status();
}

Status parse_reasoning(const bj::value& body, ChatRequest& request) {
  const bj::value* reasoning = json::find(body, "reasoning");
  if (reasoning == nullptr) return ok_status();
  if (!reasoning->is_object()) return invalid("reasoning", "'reasoning' must be an object");
  FLOTILLA_TRY(const auto effort, json::get_string(*reasoning, "effort", "reasoning"));
  if (!effort) return ok_status();
  return set_reasoning_effort(*effort, "reasoning.effort", request);
}

Status parse_include(const bj::value& body, ChatRequest& request) {
  const bj::value* include = json::find(body, "include");
  if (include == nullptr) return ok_status();
  if (!include->is_array()) return invalid("include", "'include' must be an array");
  for (const bj::value& item : include->get_array()) {
    if (!item.is_string()) return invalid("include", "'include' must hold strings");
    if (item == "message.output_text.logprobs") request.logprobs = true;
  }
  return ok_status();
}

Status parse_truncation(const bj::value& body) {
  FLOTILLA_TRY(const auto truncation, json::get_string(body, "truncation"));
  const std::string word = truncation.value_or("disabled");
  if (word == "disabled" || word == "auto") return ok_status();
  return invalid("truncation", "'truncation' must be 'auto' or 'disabled'");
}

Status parse_metadata(const bj::value& body) {
  const bj::value* metadata = json::find(body, "metadata");
  if (metadata == nullptr || metadata->is_object()) return ok_status();
  return invalid("metadata", "'metadata' must be an object");
}

Status parse_numbers(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(request.max_tokens, json::get_int(body, "max_output_tokens", 1, kMaxTokensLimit));
  FLOTILLA_TRY(request.temperature, json::get_double(body, "temperature", 0, 2));
  FLOTILLA_TRY(request.top_p, json::get_double(body, "top_p", 0, 1));
  FLOTILLA_TRY(const auto top, json::get_int(body, "top_logprobs", 0, kMaxTopLogprobs));
  request.top_logprobs = static_cast<int>(top.value_or(0));
  if (request.top_logprobs > 0) request.logprobs = true;
  FLOTILLA_TRY(const auto stream, json::get_bool(body, "stream"));
  request.stream = stream.value_or(false);
  const bj::value* options = json::find(body, "stream_options");
  if (options == nullptr) return ok_status();
  if (!options->is_object()) return invalid("stream_options", "'stream_options' must be an object");
  if (!request.stream)
    return invalid("stream_options", "'stream_options' needs 'stream' to be true");
  return ok_status();
}

// What the answer repeats: the member of the request, or what its absence means.
std::string settings_of(const bj::value& body) {
  static constexpr std::pair<std::string_view, std::string_view> kRepeated[] = {
      {"instructions", "null"},
      {"max_output_tokens", "null"},
      {"max_tool_calls", "null"},
      {"metadata", "{}"},
      {"parallel_tool_calls", "true"},
      {"prompt_cache_key", "null"},
      {"reasoning", R"({"effort":null,"summary":null})"},
      {"safety_identifier", "null"},
      {"temperature", "null"},
      {"text", R"({"format":{"type":"text"}})"},
      {"tool_choice", R"("auto")"},
      {"tools", "[]"},
      {"top_logprobs", "0"},
      {"top_p", "null"},
      {"truncation", R"("disabled")"},
      {"user", "null"}};
  std::string out = R"("background":false,"previous_response_id":null,"service_tier":"default",)"
                    R"("store":false)";
  for (const auto& [name, absent] : kRepeated) {
    const bj::value* value = json::find(body, name);
    out += ",\"" + std::string(name) + "\":";
    out += value == nullptr ? std::string(absent) : bj::serialize(*value);
  }
  return out;
}

}  // namespace

Result<ResponsesRequest> parse_responses_request(const bj::value& body) {
  if (!body.is_object()) return invalid("", "the body must be a JSON object");
  ResponsesRequest out;
  ChatRequest& job = out.job;
  FLOTILLA_TRY_STATUS(parse_model(body, job));
  FLOTILLA_TRY_STATUS(refuse_state(body));
  FLOTILLA_TRY(job.messages, parse_responses_input(body));
  FLOTILLA_TRY_STATUS(parse_tools_of_response(body, job));
  FLOTILLA_TRY_STATUS(parse_text(body, job));
  FLOTILLA_TRY_STATUS(parse_reasoning(body, job));
  FLOTILLA_TRY_STATUS(parse_numbers(body, job));
  FLOTILLA_TRY_STATUS(parse_include(body, job));
  FLOTILLA_TRY_STATUS(parse_truncation(body));
  FLOTILLA_TRY_STATUS(parse_metadata(body));
  out.settings = settings_of(body);
  return out;
}

}  // namespace flotilla::api
