#include "flotilla/api/responses_input.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

bool is_one_of(std::string_view type, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), type) != names.end();
}

Result<std::string> part_text(const bj::value& part, const std::string& where) {
  FLOTILLA_TRY(const std::string type, json::require_string(part, "type", where));
  if (is_one_of(type, {"input_text", "output_text", "text", "summary_text", "reasoning_text"})) {
    return json::require_string(part, "text", where);
  }
  if (type == "refusal") return json::require_string(part, "refusal", where);
  if (is_one_of(type, {"input_image", "input_file", "input_audio", "computer_screenshot"})) {
    return unsupported(where + ".type",
                       "content parts of type '" + type + "' are not supported yet: text only");
  }
  return invalid(where + ".type", "'" + where + ".type' is not a known type of content part");
}

// Text parts of a member that is a string, an array of parts, or nothing.
Result<bj::array> text_parts(const bj::value& item, std::string_view key,
                             const std::string& where) {
  bj::array out;
  const bj::value* content = json::find(item, key);
  if (content == nullptr) return out;
  if (content->is_string()) {
    out.push_back(text_part(std::string_view(content->get_string())));
    return out;
  }
  const std::string path = where + "." + std::string(key);
  if (!content->is_array())
    return invalid(path, "'" + path + "' must be a string or an array of parts");
  const bj::array& parts = content->get_array();
  if (parts.size() > kMaxPartsPerMessage) {
    return invalid(path, "'" + path + "' has " + std::to_string(parts.size()) +
                             " parts; the limit is " + std::to_string(kMaxPartsPerMessage));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    FLOTILLA_TRY(const std::string text, part_text(parts[i], index_path(path, i)));
    out.push_back(text_part(text));
  }
  return out;
}

std::string join(const bj::array& parts) {
  std::string text;
  for (const bj::value& part : parts) text += std::string_view(part.at("text").get_string());
  return text;
}

class Conversation {
 public:
  Status add(const bj::value& item, const std::string& where) {
    if (!item.is_object()) return invalid(where, "'" + where + "' must be an object");
    FLOTILLA_TRY(const auto given, json::get_string(item, "type", where));
    const bool has_role = json::find(item, "role") != nullptr;
    if (!given && !has_role) {
      return invalid(where + ".type", "'" + where + "' has neither a 'type' nor a 'role'");
    }
    const std::string type = given.value_or("message");
    if (type == "message") return add_message(item, where);
    if (type == "function_call") return add_call(item, where);
    if (type == "function_call_output") return add_output(item, where);
    if (type == "reasoning") return add_reasoning(item, where);
    if (type == "item_reference") {
      return unsupported(where + ".type", "'" + where +
                                              "': items are not stored by this server; send them "
                                              "in full");
    }
    return unsupported(where + ".type",
                       "'" + where + ".type': items of this type are not supported");
  }

  void add_system(std::string_view text) {
    out_.push_back(bj::object{{"role", "system"}, {"content", text}});
  }
  void add_user(std::string_view text) {
    out_.push_back(bj::object{{"role", "user"}, {"content", text}});
  }

  bj::value take() {
    close_turn();
    return std::move(out_);
  }

 private:
  Status add_message(const bj::value& item, const std::string& where) {
    FLOTILLA_TRY(const std::string role, json::require_string(item, "role", where));
    FLOTILLA_TRY(bj::array parts, text_parts(item, "content", where));
    if (role == "assistant") {
      if (!calls_.empty()) close_turn();  // text after calls is another turn
      open_ = true;
      for (bj::value& part : parts) {
        if (!part.at("text").get_string().empty()) parts_.push_back(std::move(part));
      }
      return ok_status();
    }
    if (!is_one_of(role, {"user", "system", "developer"})) {
      return invalid(where + ".role",
                     "'" + where + ".role' must be user, assistant, system or developer");
    }
    if (json::find(item, "content") == nullptr)
      return invalid(where + ".content", "'" + where + ".content' is missing");
    close_turn();
    out_.push_back(bj::object{{"role", role == "user" ? "user" : "system"},
                              {"content", content_form(std::move(parts))}});
    return ok_status();
  }

  Status add_call(const bj::value& item, const std::string& where) {
    FLOTILLA_TRY(const auto call_id, get_name(item, "call_id", where));
    FLOTILLA_TRY(const auto name, get_name(item, "name", where));
    if (!call_id || call_id->empty())
      return invalid(where + ".call_id", "'" + where + ".call_id' is missing");
    if (!name || name->empty()) return invalid(where + ".name", "'" + where + ".name' is missing");
    FLOTILLA_TRY(bj::value arguments, parse_arguments(json::find(item, "arguments"), where));
    if (calls_.size() >= kMaxCallsPerMessage) {
      return invalid(where, "'" + where + "' is beyond the limit of " +
                                std::to_string(kMaxCallsPerMessage) + " calls of one turn");
    }
    open_ = true;
    calls_.push_back(call_form(*call_id, *name, std::move(arguments)));
    return ok_status();
  }

  Status add_output(const bj::value& item, const std::string& where) {
    FLOTILLA_TRY(const auto call_id, get_name(item, "call_id", where));
    if (!call_id || call_id->empty())
      return invalid(where + ".call_id", "'" + where + ".call_id' is missing");
    FLOTILLA_TRY(const bj::array parts, text_parts(item, "output", where));
    close_turn();
    out_.push_back(
        bj::object{{"role", "tool"}, {"content", join(parts)}, {"tool_call_id", *call_id}});
    return ok_status();
  }

  // The thoughts themselves where the item has them, else their summary. What is encrypted only
  // its author can read.
  Status add_reasoning(const bj::value& item, const std::string& where) {
    FLOTILLA_TRY(const bj::array content, text_parts(item, "content", where));
    FLOTILLA_TRY(const bj::array summary, text_parts(item, "summary", where));
    if (!calls_.empty()) close_turn();
    thoughts_ += join(content.empty() ? summary : content);
    return ok_status();
  }

  void close_turn() {
    bj::array parts = std::exchange(parts_, {});
    bj::array calls = std::exchange(calls_, {});
    std::string thoughts = std::exchange(thoughts_, {});
    if (!std::exchange(open_, false)) return;  // thoughts that led to nothing go with it
    bj::object message{{"role", "assistant"}};
    message["content"] =
        parts.empty() && !calls.empty() ? bj::value(nullptr) : content_form(std::move(parts));
    if (!thoughts.empty()) message["reasoning_content"] = thoughts;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    out_.push_back(std::move(message));
  }

  bj::array out_;
  // The turn of the assistant that is being gathered.
  bool open_ = false;
  bj::array parts_, calls_;
  std::string thoughts_;
};

}  // namespace

Result<bj::value> parse_responses_input(const bj::value& body) {
  Conversation conversation;
  FLOTILLA_TRY(const auto instructions, json::get_string(body, "instructions"));
  if (instructions && !instructions->empty()) conversation.add_system(*instructions);
  const bj::value* input = json::find(body, "input");
  if (input == nullptr) return invalid("input", "'input' is missing");
  if (input->is_string()) {
    conversation.add_user(std::string_view(input->get_string()));
    return conversation.take();
  }
  if (!input->is_array()) return invalid("input", "'input' must be a string or an array of items");
  const bj::array& items = input->get_array();
  if (items.empty()) return invalid("input", "'input' must contain at least one item");
  if (items.size() > kMaxMessages) {
    return invalid("input", "'input' has " + std::to_string(items.size()) +
                                " items; the limit is " + std::to_string(kMaxMessages));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    FLOTILLA_TRY_STATUS(conversation.add(items[i], index_path("input", i)));
  }
  bj::value messages = conversation.take();
  if (messages.as_array().empty()) return invalid("input", "'input' holds no message");
  return messages;
}

}  // namespace flotilla::api
