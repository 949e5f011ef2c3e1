#include "flotilla/api/anthropic_request.h"

#include <boost/json.hpp>

#include "flotilla/api/anthropic_blocks.h"
#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

constexpr UnsupportedField kUnsupported[] = {{"container", Neutral::kNone},
                                             {"mcp_servers", Neutral::kEmpty}};

Status parse_one_tool(const bj::value& tool, const std::string& where, ToolList& list) {
  if (!tool.is_object()) return invalid(where, "'" + where + "' must be an object");
  FLOTILLA_TRY(const auto type, json::get_string(tool, "type", where));
  if (type && *type != "custom") {
    return unsupported(where + ".type",
                       "'" + where + ".type': only tools with an 'input_schema' are supported");
  }
  const bj::value* schema = json::find(tool, "input_schema");
  if (schema == nullptr || !schema->is_object()) {
    return invalid(where + ".input_schema",
                   "'" + where + ".input_schema' must be a JSON schema object");
  }
  bj::object function;
  for (const std::string_view key : {"name", "description", "strict"}) {
    if (const bj::value* value = json::find(tool, key)) function[key] = *value;
  }
  function["parameters"] = *schema;
  return list.add(function, where);
}

Status parse_tool_choice(const bj::value& body, ToolList& list, ChatRequest& request) {
  const std::string field = "tool_choice";
  const bj::value* choice = json::find(body, field);
  if (choice == nullptr) return ok_status();
  if (!choice->is_object()) return invalid(field, "'tool_choice' must be an object");
  FLOTILLA_TRY(const std::string type, json::require_string(*choice, "type", field));
  FLOTILLA_TRY(const auto disable, json::get_bool(*choice, "disable_parallel_tool_use", field));
  request.parallel_tool_calls = !disable.value_or(false);
  if (type == "auto" || type == "none") return choose_word(field, type, list, request);
  if (type == "any") return choose_word(field, "required", list, request);
  if (type == "tool") {
    FLOTILLA_TRY(std::string name, json::require_string(*choice, "name", field));
    return choose_function(field + ".name", std::move(name), list, request);
  }
  return invalid(field + ".type", "'tool_choice.type' must be auto, any, tool or none");
}

Status parse_anthropic_tools(const bj::value& body, ChatRequest& request) {
  ToolList list;
  if (const bj::value* tools = json::find(body, "tools")) {
    FLOTILLA_TRY(const bj::array* items, tool_array(*tools, "tools"));
    for (std::size_t i = 0; i < items->size(); ++i) {
      FLOTILLA_TRY_STATUS(parse_one_tool((*items)[i], index_path("tools", i), list));
    }
  }
  request.tool_choice = list.tools.empty() ? "none" : "auto";
  FLOTILLA_TRY_STATUS(parse_tool_choice(body, list, request));
  take_tools(std::move(list), request);
  return ok_status();
}

// Whether to think. The budget is checked and not kept: max_tokens bounds thoughts and answer.
Status parse_thinking(const bj::value& body, ChatRequest& request) {
  const bj::value* thinking = json::find(body, "thinking");
  if (thinking == nullptr) return ok_status();
  const std::string field = "thinking";
  if (!thinking->is_object()) return invalid(field, "'thinking' must be an object");
  FLOTILLA_TRY(const std::string type, json::require_string(*thinking, "type", field));
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return invalid(field + ".type", "'thinking.type' must be enabled, adaptive or disabled");
  }
  if (type == "enabled") {
    FLOTILLA_TRY_STATUS(json::require_int(*thinking, "budget_tokens", 1, kMaxTokensLimit, field));
  }
  request.template_variables["enable_thinking"] = type != "disabled";
  return ok_status();
}

// {"type": "json_schema", "schema": ...}
Status parse_format(const bj::value& format, const std::string& where, ChatRequest& request) {
  if (!format.is_object()) return invalid(where, "'" + where + "' must be an object");
  FLOTILLA_TRY(const std::string type, json::require_string(format, "type", where));
  if (type != "json_schema")
    return invalid(where + ".type", "'" + where + ".type' must be 'json_schema'");
  const bj::value* schema = json::find(format, "schema");
  if (schema == nullptr) return invalid(where + ".schema", "'" + where + ".schema' is missing");
  if (!request.output_format.is_null())
    return invalid(where, "'" + where + "' is a second constraint of the output");
  FLOTILLA_TRY(request.output_format, schema_form(*schema, where + ".schema"));
  return ok_status();
}

Status parse_output(const bj::value& body, ChatRequest& request) {
  if (const bj::value* format = json::find(body, "output_format")) {
    FLOTILLA_TRY_STATUS(parse_format(*format, "output_format", request));
  }
  const bj::value* config = json::find(body, "output_config");
  if (config == nullptr) return ok_status();
  const std::string field = "output_config";
  if (!config->is_object()) return invalid(field, "'output_config' must be an object");
  if (const bj::value* format = json::find(*config, "format")) {
    FLOTILLA_TRY_STATUS(parse_format(*format, "output_config.format", request));
  }
  FLOTILLA_TRY(const auto effort, json::get_string(*config, "effort", field));
  if (!effort) return ok_status();
  if (*effort == "none" || *effort == "minimal") {
    return invalid(field + ".effort", "'output_config.effort' must be low, medium, high or more");
  }
  // How much to think, where the client asked for thoughts; whether to, `thinking` says.
  ChatRequest effort_only;
  FLOTILLA_TRY_STATUS(set_reasoning_effort(*effort, field + ".effort", effort_only));
  request.template_variables["reasoning_effort"] =
      effort_only.template_variables["reasoning_effort"];
  return ok_status();
}

// Edits that change nothing are taken; those that would cut the history are not.
Status check_context_management(const bj::value& body) {
  const std::string field = "context_management";
  const bj::value* management = json::find(body, field);
  if (management == nullptr) return ok_status();
  if (!management->is_object()) return invalid(field, "'context_management' must be an object");
  const bj::value* edits = json::find(*management, "edits");
  if (edits == nullptr) return ok_status();
  if (!edits->is_array())
    return invalid(field + ".edits", "'context_management.edits' must be an array");
  for (std::size_t i = 0; i < edits->get_array().size(); ++i) {
    const std::string path = index_path(field + ".edits", i);
    const bj::value& edit = edits->get_array()[i];
    FLOTILLA_TRY(const std::string type, json::require_string(edit, "type", path));
    const bj::value* keep = json::find(edit, "keep");
    const bool keeps_all = type.starts_with("clear_thinking") && keep != nullptr && *keep == "all";
    if (!keeps_all)
      return unsupported(path, "'" + path + "': the history is never edited by this server");
  }
  return ok_status();
}

Status parse_stop_sequences(const bj::value& body, ChatRequest& request) {
  const bj::value* stops = json::find(body, "stop_sequences");
  if (stops == nullptr) return ok_status();
  if (!stops->is_array() || stops->get_array().size() > kMaxStops) {
    return invalid("stop_sequences", "'stop_sequences' must be an array of at most " +
                                         std::to_string(kMaxStops) + " strings");
  }
  for (std::size_t i = 0; i < stops->get_array().size(); ++i) {
    FLOTILLA_TRY_STATUS(add_stop(stops->get_array()[i], index_path("stop_sequences", i), request));
  }
  return ok_status();
}

Status parse_sampler(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(request.temperature, json::get_double(body, "temperature", 0, 1));
  FLOTILLA_TRY(request.top_p, json::get_double(body, "top_p", 0, 1));
  FLOTILLA_TRY(const auto top_k, json::get_int(body, "top_k", 0, kMaxTokenId));
  if (top_k) request.top_k = static_cast<int>(*top_k);
  FLOTILLA_TRY(const auto stream, json::get_bool(body, "stream"));
  request.stream = stream.value_or(false);
  return parse_stop_sequences(body, request);
}

// A last turn of the assistant is the beginning of the answer.
Status parse_prefill(ChatRequest& request) {
  const bj::value& last = request.messages.as_array().back();
  if (last.at("role") != "assistant") return ok_status();
  const std::string field = "messages";
  FLOTILLA_TRY_STATUS(check_continuation(request, field));
  const bj::value* thinking = request.template_variables.if_contains("enable_thinking");
  if (thinking != nullptr && *thinking == true) {
    return invalid(field, "'messages' must end with a user turn when 'thinking' is enabled");
  }
  request.continue_final_message = true;
  request.add_generation_prompt = false;
  return ok_status();
}

}  // namespace

Result<ChatRequest> parse_anthropic_request(const bj::value& body, AnthropicCall call) {
  if (!body.is_object()) return invalid("", "the body must be a JSON object");
  ChatRequest request;
  FLOTILLA_TRY_STATUS(parse_model(body, request));
  request.count_only = call == AnthropicCall::kCountTokens;
  if (!request.count_only) {
    FLOTILLA_TRY(request.max_tokens, json::require_int(body, "max_tokens", 1, kMaxTokensLimit));
  }
  FLOTILLA_TRY(request.messages, parse_anthropic_messages(body));
  FLOTILLA_TRY_STATUS(refuse_unless_neutral(body, kUnsupported));
  FLOTILLA_TRY_STATUS(check_context_management(body));
  FLOTILLA_TRY_STATUS(parse_anthropic_tools(body, request));
  FLOTILLA_TRY_STATUS(parse_thinking(body, request));
  FLOTILLA_TRY_STATUS(parse_output(body, request));
  FLOTILLA_TRY_STATUS(parse_sampler(body, request));
  FLOTILLA_TRY_STATUS(parse_prefill(request));
  if (request.count_only) request.stream = false;
  return request;
}

}  // namespace flotilla::api
