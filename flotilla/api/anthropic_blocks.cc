#include "flotilla/api/anthropic_blocks.h"

#include <boost/json.hpp>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

Error unknown_block(const std::string& where, const std::string& type, std::string_view role) {
  for (const std::string_view known :
       {"image", "document", "search_result", "server_tool_use", "web_search_tool_result",
        "web_fetch_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result", "mcp_tool_use", "mcp_tool_result",
        "container_upload"}) {
    if (type == known) {
      return unsupported(where + ".type", "'" + where + ".type': blocks of type '" + type +
                                              "' are not supported: text and tools only");
    }
  }
  return invalid(where + ".type",
                 "'" + where + ".type' is no block of a turn of the " + std::string(role));
}

// The blocks of `content`; a string counts as one text block.
Result<bj::array> blocks_of(const bj::value& object, std::string_view key,
                            const std::string& where) {
  const std::string path = json::join_path(where, key);
  const bj::value* content = json::find(object, key);
  if (content == nullptr) return bj::array();
  if (content->is_string()) {
    return bj::array{text_part(std::string_view(content->get_string()))};
  }
  if (!content->is_array())
    return invalid(path, "'" + path + "' must be a string or an array of blocks");
  if (content->get_array().size() > kMaxPartsPerMessage) {
    return invalid(path, "'" + path + "' has " + std::to_string(content->get_array().size()) +
                             " blocks; the limit is " + std::to_string(kMaxPartsPerMessage));
  }
  return content->get_array();
}

// Blocks that can only be text: those of the system prompt and of a tool's result.
Result<bj::array> text_blocks(const bj::value& object, std::string_view key,
                              const std::string& where, std::string_view role) {
  FLOTILLA_TRY(const bj::array blocks, blocks_of(object, key, where));
  bj::array out;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::string path = index_path(json::join_path(where, key), i);
    FLOTILLA_TRY(const std::string type, json::require_string(blocks[i], "type", path));
    if (type != "text") return unknown_block(path, type, role);
    FLOTILLA_TRY(const std::string text, json::require_string(blocks[i], "text", path));
    out.push_back(text_part(text));
  }
  return out;
}

// Gathers turns and closes them when the role changes.
class Conversation {
 public:
  Status add_system(const bj::value& body) {
    FLOTILLA_TRY(bj::array parts, text_blocks(body, "system", "", "system"));
    // Bookkeeping of a client, another one in every request: as a part of the prompt it would keep
    // caches from ever being found again.
    const auto is_bookkeeping = [](const bj::value& part) {
      return part.at("text").get_string().starts_with("x-anthropic-billing-header:");
    };
    if (!parts.empty() && is_bookkeeping(parts.front())) parts.erase(parts.begin());
    bj::value content = content_form(std::move(parts));
    if (content == "") return ok_status();
    out_.push_back(bj::object{{"role", "system"}, {"content", std::move(content)}});
    return ok_status();
  }

  Status add(const bj::value& message, std::size_t index) {
    const std::string where = index_path("messages", index);
    if (!message.is_object()) return invalid(where, "'" + where + "' must be an object");
    FLOTILLA_TRY(const std::string role, json::require_string(message, "role", where));
    if (role != "user" && role != "assistant") {
      return invalid(where + ".role", "'" + where + ".role' must be 'user' or 'assistant'");
    }
    if (json::find(message, "content") == nullptr)
      return invalid(where + ".content", "'" + where + ".content' is missing");
    FLOTILLA_TRY(const bj::array blocks, blocks_of(message, "content", where));
    const bool is_user = role == "user";
    if (is_user) close_assistant();
    if (!is_user) close_user();
    // An empty turn is a turn.
    (is_user ? has_user_ : has_assistant_) = true;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::string path = index_path(where + ".content", i);
      FLOTILLA_TRY(const std::string type, json::require_string(blocks[i], "type", path));
      FLOTILLA_TRY_STATUS(is_user ? add_user_block(blocks[i], type, path)
                                  : add_assistant_block(blocks[i], type, path));
    }
    return ok_status();
  }

  bj::value take() {
    close_user();
    close_assistant();
    return std::move(out_);
  }

 private:
  Status add_user_block(const bj::value& block, const std::string& type, const std::string& path) {
    if (type == "text") {
      FLOTILLA_TRY(const std::string text, json::require_string(block, "text", path));
      user_parts_.push_back(text_part(text));
      has_user_ = true;
      return ok_status();
    }
    if (type != "tool_result") return unknown_block(path, type, "user");
    if (user_parts_.empty()) has_user_ = false;  // the turn consists of results so far
    close_user();
    return add_tool_result(block, path);
  }

  Status add_tool_result(const bj::value& block, const std::string& path) {
    FLOTILLA_TRY(const auto id, get_name(block, "tool_use_id", path));
    if (!id || id->empty())
      return invalid(path + ".tool_use_id", "'" + path + ".tool_use_id' is missing");
    FLOTILLA_TRY(const auto is_error, json::get_bool(block, "is_error", path));
    FLOTILLA_TRY(bj::array parts, text_blocks(block, "content", path, "tool"));
    // Templates know no other way to say it.
    if (is_error.value_or(false)) parts.insert(parts.begin(), text_part("Error: "));
    std::string text;
    for (const bj::value& part : parts) text += std::string_view(part.at("text").get_string());
    out_.push_back(bj::object{{"role", "tool"}, {"content", text}, {"tool_call_id", *id}});
    return ok_status();
  }

  Status add_assistant_block(const bj::value& block, const std::string& type,
                             const std::string& path) {
    if (type == "text") {
      FLOTILLA_TRY(const std::string text, json::require_string(block, "text", path));
      if (!text.empty()) assistant_parts_.push_back(text_part(text));
      return ok_status();
    }
    if (type == "thinking") {
      FLOTILLA_TRY(const std::string text, json::require_string(block, "thinking", path));
      thinking_ += text;
      return ok_status();
    }
    if (type == "redacted_thinking") return ok_status();  // nobody here can read it
    if (type != "tool_use") return unknown_block(path, type, "assistant");
    FLOTILLA_TRY(const auto id, get_name(block, "id", path));
    FLOTILLA_TRY(const auto name, get_name(block, "name", path));
    if (!id || id->empty()) return invalid(path + ".id", "'" + path + ".id' is missing");
    if (!name || name->empty()) return invalid(path + ".name", "'" + path + ".name' is missing");
    const bj::value* input = json::find(block, "input");
    if (input != nullptr && !input->is_object())
      return invalid(path + ".input", "'" + path + ".input' must be an object");
    if (calls_.size() >= kMaxCallsPerMessage) {
      return invalid(path, "'" + path + "' is beyond the limit of " +
                               std::to_string(kMaxCallsPerMessage) + " calls of one turn");
    }
    calls_.push_back(call_form(*id, *name, input != nullptr ? *input : bj::value(bj::object())));
    return ok_status();
  }

  void close_user() {
    if (!std::exchange(has_user_, false)) return;
    out_.push_back(
        bj::object{{"role", "user"}, {"content", content_form(std::exchange(user_parts_, {}))}});
  }

  void close_assistant() {
    if (!std::exchange(has_assistant_, false)) return;
    bj::array parts = std::exchange(assistant_parts_, {});
    bj::object message{{"role", "assistant"}};
    // As in chat completions: null beside calls, where templates test for it.
    message["content"] =
        parts.empty() && !calls_.empty() ? bj::value(nullptr) : content_form(std::move(parts));
    if (!thinking_.empty()) message["reasoning_content"] = std::exchange(thinking_, {});
    if (!calls_.empty()) message["tool_calls"] = std::exchange(calls_, {});
    out_.push_back(std::move(message));
  }

  bj::array out_;
  bj::array user_parts_, assistant_parts_, calls_;
  std::string thinking_;
  bool has_user_ = false, has_assistant_ = false;
};

}  // namespace

Result<bj::value> parse_anthropic_messages(const bj::value& body) {
  const bj::value* messages = json::find(body, "messages");
  if (messages == nullptr) return invalid("messages", "'messages' is missing");
  if (!messages->is_array()) return invalid("messages", "'messages' must be an array");
  const bj::array& items = messages->get_array();
  if (items.empty()) return invalid("messages", "'messages' must contain at least one message");
  if (items.size() > kMaxMessages) {
    return invalid("messages", "'messages' has " + std::to_string(items.size()) +
                                   " entries; the limit is " + std::to_string(kMaxMessages));
  }
  Conversation conversation;
  FLOTILLA_TRY_STATUS(conversation.add_system(body));
  for (std::size_t i = 0; i < items.size(); ++i) {
    FLOTILLA_TRY_STATUS(conversation.add(items[i], i));
  }
  return conversation.take();
}

}  // namespace flotilla::api
