#include <boost/json.hpp>

#include "flotilla/api/chat_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

// A field is refused unless it is absent, null, or has the value that changes nothing.
enum class Neutral { kNone, kFalse, kTrue, kZero, kOne };

struct Row {
  std::string_view field;
  Neutral neutral;
};

// Silence would be a wrong answer: each of these changes what the client gets.
constexpr Row kRows[] = {
    {"audio", Neutral::kNone},
    {"best_of", Neutral::kOne},
    {"use_beam_search", Neutral::kFalse},
    {"web_search_options", Neutral::kNone},
    {"typical_p", Neutral::kOne},
    {"xtc_probability", Neutral::kZero},
    {"mirostat", Neutral::kZero},
    {"dry_multiplier", Neutral::kZero},
    {"length_penalty", Neutral::kOne},
    {"thinking_budget", Neutral::kNone},
    {"thinking_token_budget", Neutral::kNone},
    {"echo", Neutral::kFalse},
    {"prompt_logprobs", Neutral::kNone},
    {"add_generation_prompt", Neutral::kTrue},
    {"continue_final_message", Neutral::kFalse},
    {"skip_special_tokens", Neutral::kTrue},
};

bool is_neutral(const bj::value& value, Neutral neutral) {
  switch (neutral) {
    case Neutral::kNone:
      return false;
    case Neutral::kFalse:
      return value.is_bool() && !value.get_bool();
    case Neutral::kTrue:
      return value.is_bool() && value.get_bool();
    case Neutral::kZero:
      return value.is_number() && value.to_number<double>() == 0;
    case Neutral::kOne:
      return value.is_number() && value.to_number<double>() == 1;
  }
  return false;
}

Status check_modalities(const bj::value& body) {
  const bj::value* modalities = json::find(body, "modalities");
  if (modalities == nullptr) return ok_status();
  if (!modalities->is_array()) return invalid("modalities", "'modalities' must be an array");
  for (const bj::value& modality : modalities->get_array()) {
    if (modality != "text") {
      return unsupported("modalities", "'modalities' other than 'text' are not supported");
    }
  }
  return ok_status();
}

}  // namespace

Status refuse_unsupported(const bj::value& body) {
  for (const Row& row : kRows) {
    const bj::value* value = json::find(body, row.field);
    if (value == nullptr || is_neutral(*value, row.neutral)) continue;
    const std::string field(row.field);
    return unsupported(field, "'" + field + "' is not supported with this value");
  }
  return check_modalities(body);
}

}  // namespace flotilla::api
