#include <boost/json.hpp>
#include <set>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
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

}  // namespace

bool ToolList::has(std::string_view name) const {
  for (const bj::value& tool : tools) {
    if (tool.at("function").at("name").get_string() == name) return true;
  }
  return false;
}

Status ToolList::add(const bj::value& function, const std::string& where) {
  FLOTILLA_TRY(bj::value tool, parse_function(function, where));
  const bj::string& text = tool.at("function").at("name").get_string();
  std::string name(text.data(), text.size());
  if (has(name)) {
    return invalid(where + ".name", "'" + where + ".name' is the name of an earlier tool too");
  }
  FLOTILLA_TRY(const auto is_strict, json::get_bool(function, "strict", where));
  if (is_strict.value_or(false)) strict.push_back(std::move(name));
  tools.push_back(std::move(tool));
  return ok_status();
}

namespace {

Result<ToolList> parse_tool_list(const bj::value& body) {
  ToolList out;
  const bj::value* tools = json::find(body, "tools");
  const bool legacy = tools == nullptr;
  if (legacy) tools = json::find(body, "functions");
  if (tools == nullptr) return out;
  const std::string field = legacy ? "functions" : "tools";
  FLOTILLA_TRY(const bj::array* items, tool_array(*tools, field));
  for (std::size_t i = 0; i < items->size(); ++i) {
    const bj::value& item = (*items)[i];
    std::string where = index_path(field, i);
    const bj::value* function = &item;
    if (!legacy) {
      if (!item.is_object()) return invalid(where, "'" + where + "' must be an object");
      FLOTILLA_TRY(const auto type, json::get_string(item, "type", where));
      if (type && *type != "function") {
        return unsupported(where + ".type", "only tools of type 'function' are supported");
      }
      function = json::find(item, "function");
      where += ".function";
      if (function == nullptr) return invalid(where, "'" + where + "' is missing");
    }
    FLOTILLA_TRY_STATUS(out.add(*function, where));
  }
  return out;
}

}  // namespace

Result<const bj::array*> tool_array(const bj::value& tools, const std::string& field) {
  if (!tools.is_array()) return invalid(field, "'" + field + "' must be an array");
  const bj::array& items = tools.get_array();
  if (items.size() > kMaxTools) {
    return invalid(field, "'" + field + "' has " + std::to_string(items.size()) +
                              " entries; the limit is " + std::to_string(kMaxTools));
  }
  return &items;
}

Status choose_word(std::string_view field, std::string_view word, const ToolList& list,
                   ChatRequest& request) {
  if (word == "none" || word == "auto") {
    request.tool_choice = word;
    return ok_status();
  }
  const std::string name(field);
  if (word != "required") {
    return invalid(name, "'" + name + "' must be 'none', 'auto', 'required' or an object");
  }
  if (list.tools.empty())
    return invalid(name, "'" + name + "' is 'required' but the request has no tools");
  request.tool_choice = word;
  return ok_status();
}

Status choose_function(const std::string& where, std::string name, const ToolList& list,
                       ChatRequest& request) {
  if (!list.has(name)) return invalid(where, "'" + where + "' names no tool of this request");
  request.tool_choice = "function";
  request.tool_choice_function = std::move(name);
  return ok_status();
}

// {"mode": "auto", "tools": [{"type": "function", "function": {"name": ...}}]}
Status keep_allowed(const bj::value& allowed, const std::string& where, ToolList& list,
                    ChatRequest& request) {
  if (!allowed.is_object()) return invalid(where, "'" + where + "' must be an object");
  FLOTILLA_TRY(const std::string mode, json::require_string(allowed, "mode", where));
  if (mode != "auto" && mode != "required")
    return invalid(where + ".mode", "'" + where + ".mode' must be 'auto' or 'required'");
  const bj::value* named = json::find(allowed, "tools");
  if (named == nullptr || !named->is_array())
    return invalid(where + ".tools", "'" + where + ".tools' must be an array");
  std::set<std::string> names;
  for (std::size_t i = 0; i < named->get_array().size(); ++i) {
    const bj::value& item = named->get_array()[i];
    const std::string path = index_path(where + ".tools", i);
    const bj::value* function = json::find(item, "function");
    FLOTILLA_TRY(std::string name,
                 json::require_string(function == nullptr ? item : *function, "name", path));
    if (!list.has(name)) return invalid(path, "'" + path + "' names no tool of this request");
    names.insert(std::move(name));
  }
  bj::array kept;
  for (bj::value& tool : list.tools) {
    const auto& name = tool.at("function").at("name").get_string();
    if (names.contains(std::string(name.data(), name.size()))) kept.push_back(std::move(tool));
  }
  if (kept.empty() && mode == "required") {
    return invalid(where + ".tools", "'" + where + ".mode' is 'required' but no tool is allowed");
  }
  list.tools = std::move(kept);
  request.tool_choice = mode;
  return ok_status();
}

void take_tools(ToolList list, ChatRequest& request) {
  if (list.tools.empty()) request.tool_choice = "none";
  if (request.tool_choice == "none") {
    request.tools = nullptr;
    request.strict_tools.clear();
    return;
  }
  std::erase_if(list.strict, [&](const std::string& name) { return !list.has(name); });
  request.strict_tools = std::move(list.strict);
  request.tools = std::move(list.tools);
}

namespace {

Status set_object_choice(std::string_view field, const bj::value& choice, ToolList& list,
                         ChatRequest& request) {
  const std::string where(field);
  const bool legacy = field == "function_call";
  const bj::value* function = legacy ? &choice : json::find(choice, "function");
  if (!legacy) {
    FLOTILLA_TRY(const std::string type, json::require_string(choice, "type", where));
    if (type == "allowed_tools") {
      const bj::value* allowed = json::find(choice, "allowed_tools");
      return keep_allowed(allowed == nullptr ? choice : *allowed, where + ".allowed_tools", list,
                          request);
    }
    if (type != "function")
      return unsupported(where + ".type", "'" + where + ".type' must be 'function'");
    if (function == nullptr)
      return invalid(where + ".function", "'" + where + ".function' is missing");
  }
  FLOTILLA_TRY(std::string name, json::require_string(*function, "name", where));
  return choose_function(where, std::move(name), list, request);
}

}  // namespace

Status parse_tools(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(ToolList list, parse_tool_list(body));
  request.tool_choice = list.tools.empty() ? "none" : "auto";
  std::string_view field = "tool_choice";
  const bj::value* choice = json::find(body, field);
  if (choice == nullptr) {
    field = "function_call";
    choice = json::find(body, field);
  }
  if (choice != nullptr && choice->is_string()) {
    const std::string_view word(choice->get_string().data(), choice->get_string().size());
    FLOTILLA_TRY_STATUS(choose_word(field, word, list, request));
  } else if (choice != nullptr && choice->is_object()) {
    FLOTILLA_TRY_STATUS(set_object_choice(field, *choice, list, request));
  } else if (choice != nullptr) {
    return invalid(std::string(field),
                   "'" + std::string(field) + "' must be a string or an object");
  }
  take_tools(std::move(list), request);
  FLOTILLA_TRY(const auto parallel, json::get_bool(body, "parallel_tool_calls"));
  request.parallel_tool_calls = parallel.value_or(true);
  return ok_status();
}

}  // namespace flotilla::api
