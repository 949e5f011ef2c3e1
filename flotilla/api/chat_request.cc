#include "flotilla/api/chat_request.h"

#include <boost/json.hpp>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

// Names that the renderer itself defines: a client must not replace them.
constexpr std::string_view kReservedVariables[] = {
    "messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "strftime_now"};

bool is_identifier(std::string_view name) {
  if (name.empty() || name.size() > 64 || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char c : name) {
    const bool ok =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (!ok) return false;
  }
  return true;
}

// The more particular switch wins: reasoning_effort, then enable_thinking, then
// chat_template_kwargs.
Status parse_template_variables(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(const auto effort, json::get_string(body, "reasoning_effort"));
  if (effort) {
    FLOTILLA_TRY_STATUS(set_reasoning_effort(*effort, "reasoning_effort", request));
  }
  FLOTILLA_TRY(const auto thinking, json::get_bool(body, "enable_thinking"));
  if (thinking) request.template_variables["enable_thinking"] = *thinking;
  const bj::value* kwargs = json::find(body, "chat_template_kwargs");
  if (kwargs == nullptr) return ok_status();
  const std::string field = "chat_template_kwargs";
  if (!kwargs->is_object()) return invalid(field, "'chat_template_kwargs' must be an object");
  if (kwargs->get_object().size() > kMaxTemplateVariables) {
    return invalid(field, "'chat_template_kwargs' has more than " +
                              std::to_string(kMaxTemplateVariables) + " entries");
  }
  for (const auto& entry : kwargs->get_object()) {
    const std::string_view key(entry.key().data(), entry.key().size());
    if (!is_identifier(key))
      return invalid(field, "the keys of 'chat_template_kwargs' must be identifiers");
    for (const std::string_view reserved : kReservedVariables) {
      if (key == reserved)
        return invalid(field, "'chat_template_kwargs' must not set '" + std::string(key) + "'");
    }
    request.template_variables[key] = entry.value();
  }
  return ok_status();
}

Status parse_continuation(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(const auto continues, json::get_bool(body, "continue_final_message"));
  FLOTILLA_TRY(const auto prompts, json::get_bool(body, "add_generation_prompt"));
  request.continue_final_message = continues.value_or(false);
  request.add_generation_prompt = prompts.value_or(!request.continue_final_message);
  if (!request.continue_final_message) return ok_status();
  if (request.add_generation_prompt) {
    return invalid("add_generation_prompt",
                   "'add_generation_prompt' and 'continue_final_message' exclude each other");
  }
  return check_continuation(request, "continue_final_message");
}

Status parse_logprobs(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(const auto logprobs, json::get_bool(body, "logprobs"));
  request.logprobs = logprobs.value_or(false);
  FLOTILLA_TRY(const auto top, json::get_int(body, "top_logprobs", 0, kMaxTopLogprobs));
  if (top.value_or(0) > 0 && !request.logprobs) {
    return invalid("top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
  }
  request.top_logprobs = static_cast<int>(top.value_or(0));
  FLOTILLA_TRY(const auto ids, json::get_bool(body, "return_token_ids"));
  request.return_token_ids = ids.value_or(false);
  return ok_status();
}

}  // namespace

std::string index_path(std::string_view array, std::size_t index) {
  return std::string(array) + "[" + std::to_string(index) + "]";
}

Error invalid(std::string param, std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), std::move(param)};
}

Error unsupported(std::string param, std::string message) {
  return Error{ErrorCode::kUnsupported, std::move(message), std::move(param)};
}

Status parse_model(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(request.model, json::require_string(body, "model"));
  if (request.model.empty() || request.model.size() > kMaxModelNameBytes) {
    return invalid("model",
                   "'model' must have 1 to " + std::to_string(kMaxModelNameBytes) + " bytes");
  }
  return ok_status();
}

Status set_reasoning_effort(std::string_view effort, const std::string& param,
                            ChatRequest& request) {
  for (std::string_view known : {"none", "minimal", "low", "medium", "high", "xhigh", "max"}) {
    if (effort != known) continue;
    request.template_variables["enable_thinking"] = known != "none";
    if (known != "none") request.template_variables["reasoning_effort"] = effort;
    return ok_status();
  }
  return invalid(param, "'" + param + "' must be none, minimal, low, medium, high, xhigh or max");
}

Status parse_stream(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(const auto stream, json::get_bool(body, "stream"));
  request.stream = stream.value_or(false);
  const bj::value* options = json::find(body, "stream_options");
  if (options == nullptr) return ok_status();
  if (!options->is_object()) return invalid("stream_options", "'stream_options' must be an object");
  if (!request.stream)
    return invalid("stream_options", "'stream_options' needs 'stream' to be true");
  FLOTILLA_TRY(const auto usage, json::get_bool(*options, "include_usage", "stream_options"));
  request.include_usage = usage.value_or(false);
  FLOTILLA_TRY(const auto continuous,
               json::get_bool(*options, "continuous_usage_stats", "stream_options"));
  if (continuous.value_or(false)) {
    return unsupported("stream_options.continuous_usage_stats",
                       "'stream_options.continuous_usage_stats' is not supported");
  }
  return ok_status();
}

Status check_continuation(const ChatRequest& request, const std::string& param) {
  const bj::array& messages = request.messages.as_array();
  const bj::value& last = messages.back();
  if (last.at("role") != "assistant" || json::find(last, "tool_calls") != nullptr) {
    return invalid(param, "'" + param + "' needs a last message of the assistant without calls");
  }
  const bj::value& content = last.at("content");
  if (content.is_string() && content.get_string().empty()) {
    return invalid(param, "'" + param + "' needs a last message with text");
  }
  if (!request.output_format.is_null()) {
    return unsupported(param, "'" + param + "' and a constraint of the output exclude each other");
  }
  return ok_status();
}

Result<ChatRequest> parse_chat_request(const bj::value& body) {
  if (!body.is_object()) return invalid("", "the body must be a JSON object");
  ChatRequest request;
  FLOTILLA_TRY_STATUS(parse_model(body, request));
  FLOTILLA_TRY(request.messages, parse_messages(body));
  FLOTILLA_TRY_STATUS(refuse_unsupported(body));
  FLOTILLA_TRY_STATUS(parse_tools(body, request));
  FLOTILLA_TRY_STATUS(parse_output_format(body, request));
  FLOTILLA_TRY_STATUS(parse_continuation(body, request));
  FLOTILLA_TRY_STATUS(parse_template_variables(body, request));
  FLOTILLA_TRY_STATUS(parse_stream(body, request));
  FLOTILLA_TRY(const auto n, json::get_int(body, "n", 1, kMaxChoices));
  request.n = static_cast<int>(n.value_or(1));
  FLOTILLA_TRY_STATUS(parse_max_tokens(body, request));
  FLOTILLA_TRY_STATUS(parse_sampling(body, request));
  FLOTILLA_TRY_STATUS(parse_logprobs(body, request));
  return request;
}

}  // namespace flotilla::api
