// Messages in the one form that templates see: roles system, user, assistant, tool; arguments of
// calls as objects.
#include <boost/json.hpp>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/base/text.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;

Result<std::optional<std::string>> get_name(const bj::value& object, std::string_view key,
                                            std::string_view where) {
  FLOTILLA_TRY(auto name, json::get_string(object, key, where));
  if (name && name->size() > kMaxNameBytes) {
    std::string path = json::join_path(where, key);
    return invalid(path, "'" + path + "' of " + std::to_string(name->size()) +
                             " bytes exceeds the limit of " + std::to_string(kMaxNameBytes));
  }
  return name;
}

bj::value text_part(std::string_view text) { return bj::object{{"type", "text"}, {"text", text}}; }

bj::value content_form(bj::array parts) {
  if (parts.empty()) return bj::value("");
  if (parts.size() == 1) return parts[0].at("text");
  return bj::value(std::move(parts));
}

bj::value call_form(std::string_view id, std::string_view name, bj::value arguments) {
  return bj::object{{"id", id},
                    {"type", "function"},
                    {"function", bj::object{{"name", name}, {"arguments", std::move(arguments)}}}};
}

// History may hold what a model once wrote wrongly: text that is no JSON object is passed on as it
// is, for the template to show.
Result<bj::value> parse_arguments(const bj::value* arguments, const std::string& where) {
  if (arguments == nullptr || arguments->is_null()) return bj::value(bj::object());
  if (arguments->is_object()) return *arguments;
  const std::string path = where + ".arguments";
  if (!arguments->is_string()) return invalid(path, "'" + path + "' must be a JSON text");
  const std::string_view text(arguments->get_string().data(), arguments->get_string().size());
  if (trim_ascii(text).empty()) return bj::value(bj::object());
  auto parsed = json::parse(text, {.max_bytes = text.size(), .max_depth = kMaxArgumentsDepth});
  if (parsed.ok() && parsed->is_object()) return std::move(parsed).value();
  return *arguments;
}

namespace {

Result<bj::value> parse_part(const bj::value& part, const std::string& where) {
  if (!part.is_object()) return invalid(where, "'" + where + "' must be an object with a 'type'");
  FLOTILLA_TRY(const std::string type, json::require_string(part, "type", where));
  if (type == "text" || type == "refusal") {
    FLOTILLA_TRY(std::string text, json::require_string(part, type, where));
    return text_part(text);
  }
  for (std::string_view media :
       {"image_url", "input_image", "image", "input_audio", "audio", "video_url", "file"}) {
    if (type == media) {
      return unsupported(where + ".type",
                         "content parts of type '" + type + "' are not supported yet: text only");
    }
  }
  // The type is the client's text; naming it would echo what may be anything.
  return invalid(where + ".type", "'" + where + ".type' is not a known type of content part");
}

// A string, null, or an array of two and more text parts; one part alone is its text, none are "".
Result<bj::value> parse_content(const bj::value& message, const std::string& where) {
  const bj::value* content = json::find(message, "content");
  if (content == nullptr) return bj::value(nullptr);
  if (content->is_string()) return *content;
  const std::string path = where + ".content";
  if (!content->is_array())
    return invalid(path, "'" + path + "' must be a string or an array of parts");
  const bj::array& parts = content->get_array();
  if (parts.size() > kMaxPartsPerMessage) {
    return invalid(path, "'" + path + "' has " + std::to_string(parts.size()) +
                             " parts; the limit is " + std::to_string(kMaxPartsPerMessage));
  }
  bj::array out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    FLOTILLA_TRY(bj::value part, parse_part(parts[i], index_path(path, i)));
    out.push_back(std::move(part));
  }
  return content_form(std::move(out));
}

bool is_empty_content(const bj::value& content) {
  return content.is_null() || (content.is_string() && content.get_string().empty());
}

Result<bj::value> parse_call(const bj::value& call, const std::string& where,
                             const std::string& fallback_id) {
  if (!call.is_object()) return invalid(where, "'" + where + "' must be an object");
  FLOTILLA_TRY(const auto type, json::get_string(call, "type", where));
  if (type && !type->empty() && *type != "function") {
    return unsupported(where + ".type", "only tool calls of type 'function' are supported");
  }
  const bj::value* function = json::find(call, "function");
  const std::string path = where + ".function";
  if (function == nullptr || !function->is_object())
    return invalid(path, "'" + path + "' must be an object");
  FLOTILLA_TRY(auto id, get_name(call, "id", where));
  FLOTILLA_TRY(const auto name, get_name(*function, "name", path));
  if (!name || name->empty()) return invalid(path + ".name", "'" + path + ".name' is missing");
  FLOTILLA_TRY(bj::value arguments, parse_arguments(json::find(*function, "arguments"), path));
  if (!id || id->empty()) id = fallback_id;
  return call_form(*id, *name, std::move(arguments));
}

// Walks the messages once; remembers what a legacy function result answers.
class MessageParser {
 public:
  Result<bj::value> parse(const bj::value& message, std::size_t index) {
    const std::string where = index_path("messages", index);
    if (!message.is_object()) return invalid(where, "'" + where + "' must be an object");
    FLOTILLA_TRY(const std::string role, json::require_string(message, "role", where));
    if (role == "system" || role == "developer") return parse_plain(message, where, "system");
    if (role == "user") return parse_plain(message, where, "user");
    if (role == "assistant") return parse_assistant(message, where, index);
    if (role == "tool" || role == "function") return parse_tool(message, where);
    return invalid(
        where + ".role",
        "'" + where + ".role' must be one of system, developer, user, assistant, tool, function");
  }

 private:
  Result<bj::value> parse_plain(const bj::value& message, const std::string& where,
                                std::string_view role) {
    FLOTILLA_TRY(bj::value content, parse_content(message, where));
    if (content.is_null()) return invalid(where + ".content", "'" + where + ".content' is missing");
    bj::object out{{"role", role}, {"content", std::move(content)}};
    FLOTILLA_TRY(const auto name, get_name(message, "name", where));
    if (name && !name->empty()) out["name"] = *name;
    return bj::value(std::move(out));
  }

  Result<bj::value> parse_assistant(const bj::value& message, const std::string& where,
                                    std::size_t index) {
    FLOTILLA_TRY(bj::value content, parse_content(message, where));
    if (is_empty_content(content)) {
      FLOTILLA_TRY(const auto refusal, json::get_string(message, "refusal", where));
      if (refusal && !refusal->empty()) content = *refusal;
    }
    FLOTILLA_TRY(bj::array calls, parse_calls(message, where, index));
    // One form for every spelling of "nothing": null beside calls, where templates test for it, and
    // the empty text for an empty turn, which every template can print.
    if (is_empty_content(content)) content = calls.empty() ? bj::value("") : bj::value(nullptr);
    bj::object out{{"role", "assistant"}, {"content", std::move(content)}};
    FLOTILLA_TRY(auto reasoning, json::get_string(message, "reasoning_content", where));
    if (!reasoning) {
      FLOTILLA_TRY(reasoning, json::get_string(message, "reasoning", where));
    }
    if (reasoning && !reasoning->empty()) out["reasoning_content"] = *reasoning;
    if (!calls.empty()) out["tool_calls"] = std::move(calls);
    FLOTILLA_TRY(const auto name, get_name(message, "name", where));
    if (name && !name->empty()) out["name"] = *name;
    return bj::value(std::move(out));
  }

  Result<bj::array> parse_calls(const bj::value& message, const std::string& where,
                                std::size_t index) {
    bj::array out;
    const std::string id_prefix = "call_" + std::to_string(index) + "_";
    if (const bj::value* calls = json::find(message, "tool_calls")) {
      const std::string path = where + ".tool_calls";
      if (!calls->is_array()) return invalid(path, "'" + path + "' must be an array");
      const bj::array& items = calls->get_array();
      if (items.size() > kMaxCallsPerMessage) {
        return invalid(path, "'" + path + "' has " + std::to_string(items.size()) +
                                 " calls; the limit is " + std::to_string(kMaxCallsPerMessage));
      }
      for (std::size_t i = 0; i < items.size(); ++i) {
        FLOTILLA_TRY(bj::value call,
                     parse_call(items[i], index_path(path, i), id_prefix + std::to_string(i)));
        out.push_back(std::move(call));
      }
    }
    const bj::value* legacy = json::find(message, "function_call");
    if (out.empty() && legacy != nullptr) {
      const bj::object wrapped{{"function", *legacy}};
      FLOTILLA_TRY(bj::value call,
                   parse_call(bj::value(wrapped), where + ".function_call", id_prefix + "0"));
      legacy_call_id_ = id_prefix + "0";
      out.push_back(std::move(call));
    }
    return out;
  }

  Result<bj::value> parse_tool(const bj::value& message, const std::string& where) {
    const bj::value* raw = json::find(message, "content");
    bj::value content;
    if (raw != nullptr && raw->is_object()) {
      content = *raw;  // a structured result; templates that know the form print its members
    } else {
      FLOTILLA_TRY(content, parse_content(message, where));
      if (content.is_null()) content = "";
    }
    bj::object out{{"role", "tool"}, {"content", std::move(content)}};
    FLOTILLA_TRY(auto id, get_name(message, "tool_call_id", where));
    if ((!id || id->empty()) && !legacy_call_id_.empty()) id = std::exchange(legacy_call_id_, {});
    if (id && !id->empty()) out["tool_call_id"] = *id;
    FLOTILLA_TRY(const auto name, get_name(message, "name", where));
    if (name && !name->empty()) out["name"] = *name;
    return bj::value(std::move(out));
  }

  std::string legacy_call_id_;  // of the last function_call without an answer
};

}  // namespace

Result<bj::value> parse_messages(const bj::value& body) {
  const bj::value* messages = json::find(body, "messages");
  if (messages == nullptr) return invalid("messages", "'messages' is missing");
  if (!messages->is_array()) return invalid("messages", "'messages' must be an array");
  const bj::array& items = messages->get_array();
  if (items.empty()) return invalid("messages", "'messages' must contain at least one message");
  if (items.size() > kMaxMessages) {
    return invalid("messages", "'messages' has " + std::to_string(items.size()) +
                                   " entries; the limit is " + std::to_string(kMaxMessages));
  }
  MessageParser parser;
  bj::array out;
  out.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    FLOTILLA_TRY(bj::value message, parser.parse(items[i], i));
    out.push_back(std::move(message));
  }
  return bj::value(std::move(out));
}

}  // namespace flotilla::api
