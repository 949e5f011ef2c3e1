#include "flotilla/engine/scripted_prompt.h"

#include <boost/json.hpp>
#include <optional>

#include "flotilla/engine/script.h"
#include "flotilla/json/json.h"

namespace flotilla::engine {
namespace {

namespace bj = boost::json;

std::string text_of(const bj::value& message) {
  const bj::value* content = json::find(message, "content");
  std::string text;
  if (content != nullptr && content->is_string()) {
    text = content->get_string();
  } else if (content != nullptr && content->is_array()) {
    for (const bj::value& part : content->get_array()) {
      const bj::value* piece = json::find(part, "text");
      if (piece != nullptr && piece->is_string()) {
        text += std::string_view(piece->get_string());
      } else if (const bj::value* type = json::find(part, "type"); type && type->is_string()) {
        text += " <" + std::string(type->get_string()) + "> ";
      }
    }
  }
  if (const bj::value* calls = json::find(message, "tool_calls")) {
    text += " " + bj::serialize(*calls);
  }
  return text;
}

std::string role_of(const bj::value& message) {
  const bj::value* role = json::find(message, "role");
  return role != nullptr && role->is_string() ? std::string(role->get_string()) : "user";
}

void append_words(std::string_view text, std::vector<TokenId>& ids) {
  constexpr std::string_view kBlanks = " \t\r\n";
  while (true) {
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find_first_of(kBlanks), text.size());
    ids.push_back(scripted_token_id(text.substr(0, end), false));
    text.remove_prefix(end);
  }
}

// The text of a prompt that is no conversation; nullopt for one that is.
std::optional<std::string> bare_prompt(const ChatJob& job) {
  if (!job.prompt_ids.empty()) {
    std::string text;
    for (const TokenId id : job.prompt_ids) text += (text.empty() ? "" : " ") + std::to_string(id);
    return text;
  }
  if (job.is_completion || !job.raw_prompt.empty()) return job.raw_prompt;
  return std::nullopt;
}

}  // namespace

std::string scripted_prompt_text(const ChatJob& job) {
  if (const auto bare = bare_prompt(job)) return *bare;
  std::string text;
  if (!job.messages.is_array()) return text;
  for (const bj::value& message : job.messages.get_array()) {
    text += role_of(message) + ": " + text_of(message) + "\n";
  }
  return text;
}

std::vector<TokenId> scripted_prompt_ids(const ChatJob& job) {
  if (!job.prompt_ids.empty()) return job.prompt_ids;
  std::vector<TokenId> ids;
  if (const auto bare = bare_prompt(job)) {
    append_words(*bare, ids);
    return ids;
  }
  if (!job.messages.is_array()) return ids;
  for (const bj::value& message : job.messages.get_array()) {
    ids.push_back(scripted_token_id(role_of(message), true));
    append_words(text_of(message), ids);
  }
  return ids;
}

std::string last_user_text(const ChatJob& job) {
  if (const auto bare = bare_prompt(job)) return *bare;
  if (!job.messages.is_array()) return {};
  const bj::array& messages = job.messages.get_array();
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    if (role_of(*message) == "user") return text_of(*message);
  }
  return {};
}

}  // namespace flotilla::engine
