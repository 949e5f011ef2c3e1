#include <boost/json.hpp>
#include <set>

#include "flotilla/api/chat_fields.h"
#include "flotilla/api/limits.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

bool is_tool_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxToolNameBytes) return false;
  for (const char c : name) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-';
    if (!ok) return false;
  }
  return true;
}

// The function as the client wrote it, less nulls and `strict` (a demand on decoding, nothing for
// the prompt).
Result<bj::value> parse_function(const bj::value& function, const std::string& where) {
  if (!function.is_object()) return invalid(where, "'" + where + "' must be an object");
  FLOTILLA_TRY(const std::string name, json::require_string(function, "name", where));
  if (!is_tool_name(name)) {
    return invalid(where + ".name", "'" + where + ".name' must be 1 to " +
                                        std::to_string(kMaxToolNameBytes) +
                                        " characters of a-z, A-Z, 0-9, '_' and '-'");
  }
  FLOTILLA_TRY(const auto description, json::get_string(function, "description", where));
  const bj::value* parameters = json::find(function, "parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return invalid(where + ".parameters",
                   "'" + where + ".parameters' must be a JSON schema object");
  }
  bj::object out;
  for (const auto& member : function.get_object()) {
    if (!member.value().is_null() && member.key() != "strict") out[member.key()] = member.value();
  }
  return bj::value(bj::object{{"type", "function"}, {"function", std::move(out)}});
}

Result<bj::array> parse_tool_list(const bj::value& body, std::vector<std::string>& strict_tools) {
  bj::array out;
  const bj::value* tools = json::find(body, "tools");
  const bool legacy = tools == nullptr;
  if (legacy) tools = json::find(body, "functions");
  if (tools == nullptr) return out;
  const std::string field = legacy ? "functions" : "tools";
  if (!tools->is_array()) return invalid(field, "'" + field + "' must be an array");
  const bj::array& items = tools->get_array();
  if (items.size() > kMaxTools) {
    return invalid(field, "'" + field + "' has " + std::to_string(items.size()) +
                              " entries; the limit is " + std::to_string(kMaxTools));
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::string where = index_path(field, i);
    const bj::value* function = &items[i];
    if (!legacy) {
      if (!items[i].is_object()) return invalid(where, "'" + where + "' must be an object");
      FLOTILLA_TRY(const auto type, json::get_string(items[i], "type", where));
      if (type && *type != "function") {
        return unsupported(where + ".type", "only tools of type 'function' are supported");
      }
      function = json::find(items[i], "function");
      where += ".function";
      if (function == nullptr) return invalid(where, "'" + where + "' is missing");
    }
    FLOTILLA_TRY(bj::value tool, parse_function(*function, where));
    const auto& name = tool.at("function").at("name").get_string();
    if (!names.emplace(name.data(), name.size()).second) {
      return invalid(where + ".name", "'" + where + ".name' is the name of an earlier tool too");
    }
    FLOTILLA_TRY(const auto strict, json::get_bool(*function, "strict", where));
    if (strict.value_or(false)) strict_tools.emplace_back(name.data(), name.size());
    out.push_back(std::move(tool));
  }
  return out;
}

bool has_tool(const bj::array& tools, std::string_view name) {
  for (const bj::value& tool : tools) {
    if (tool.at("function").at("name").get_string() == name) return true;
  }
  return false;
}

Status set_word_choice(std::string_view field, std::string_view word, const bj::array& tools,
                       ChatRequest& request) {
  if (word == "none" || word == "auto") {
    request.tool_choice = word;
    return ok_status();
  }
  const std::string name(field);
  if (word != "required") {
    return invalid(name, "'" + name + "' must be 'none', 'auto', 'required' or an object");
  }
  if (tools.empty())
    return invalid(name, "'" + name + "' is 'required' but the request has no tools");
  request.tool_choice = word;
  return ok_status();
}

// {"mode": "auto", "tools": [{"type": "function", "function": {"name": ...}}]}
Status keep_allowed(const bj::value& allowed, bj::array& tools, ChatRequest& request) {
  const std::string where = "tool_choice.allowed_tools";
  if (!allowed.is_object()) return invalid(where, "'" + where + "' must be an object");
  FLOTILLA_TRY(const std::string mode, json::require_string(allowed, "mode", where));
  if (mode != "auto" && mode != "required")
    return invalid(where + ".mode", "'" + where + ".mode' must be 'auto' or 'required'");
  const bj::value* list = json::find(allowed, "tools");
  if (list == nullptr || !list->is_array())
    return invalid(where + ".tools", "'" + where + ".tools' must be an array");
  std::set<std::string> names;
  for (std::size_t i = 0; i < list->get_array().size(); ++i) {
    const bj::value& item = list->get_array()[i];
    const std::string path = index_path(where + ".tools", i);
    const bj::value* function = json::find(item, "function");
    FLOTILLA_TRY(std::string name,
                 json::require_string(function == nullptr ? item : *function, "name", path));
    if (!has_tool(tools, name))
      return invalid(path, "'" + path + "' names no tool of this request");
    names.insert(std::move(name));
  }
  bj::array kept;
  for (bj::value& tool : tools) {
    const auto& name = tool.at("function").at("name").get_string();
    if (names.contains(std::string(name.data(), name.size()))) kept.push_back(std::move(tool));
  }
  if (kept.empty() && mode == "required") {
    return invalid(where + ".tools", "'" + where + ".mode' is 'required' but no tool is allowed");
  }
  tools = std::move(kept);
  request.tool_choice = mode;
  return ok_status();
}

Status set_object_choice(std::string_view field, const bj::value& choice, bj::array& tools,
                         ChatRequest& request) {
  const std::string where(field);
  const bool legacy = field == "function_call";
  const bj::value* function = legacy ? &choice : json::find(choice, "function");
  if (!legacy) {
    FLOTILLA_TRY(const std::string type, json::require_string(choice, "type", where));
    if (type == "allowed_tools") {
      const bj::value* allowed = json::find(choice, "allowed_tools");
      return keep_allowed(allowed == nullptr ? choice : *allowed, tools, request);
    }
    if (type != "function")
      return unsupported(where + ".type", "'" + where + ".type' must be 'function'");
    if (function == nullptr)
      return invalid(where + ".function", "'" + where + ".function' is missing");
  }
  FLOTILLA_TRY(const std::string name, json::require_string(*function, "name", where));
  if (!has_tool(tools, name))
    return invalid(where, "'" + where + "' names no tool of this request");
  request.tool_choice = "function";
  request.tool_choice_function = name;
  return ok_status();
}

}  // namespace

Status parse_tools(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(bj::array tools, parse_tool_list(body, request.strict_tools));
  request.tool_choice = tools.empty() ? "none" : "auto";
  std::string_view field = "tool_choice";
  const bj::value* choice = json::find(body, field);
  if (choice == nullptr) {
    field = "function_call";
    choice = json::find(body, field);
  }
  if (choice != nullptr && choice->is_string()) {
    const std::string_view word(choice->get_string().data(), choice->get_string().size());
    FLOTILLA_TRY_STATUS(set_word_choice(field, word, tools, request));
  } else if (choice != nullptr && choice->is_object()) {
    FLOTILLA_TRY_STATUS(set_object_choice(field, *choice, tools, request));
  } else if (choice != nullptr) {
    return invalid(std::string(field),
                   "'" + std::string(field) + "' must be a string or an object");
  }
  if (tools.empty()) request.tool_choice = "none";
  std::erase_if(request.strict_tools,
                [&](const std::string& name) { return !has_tool(tools, name); });
  if (request.tool_choice == "none") {
    request.tools = nullptr;
    request.strict_tools.clear();
  } else {
    request.tools = std::move(tools);
  }
  FLOTILLA_TRY(const auto parallel, json::get_bool(body, "parallel_tool_calls"));
  request.parallel_tool_calls = parallel.value_or(true);
  return ok_status();
}

}  // namespace flotilla::api
