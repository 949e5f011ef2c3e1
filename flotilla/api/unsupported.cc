#include <boost/json.hpp>

#include "flotilla/api/request_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

// Silence would be a wrong answer: each of these changes what the client gets.
constexpr UnsupportedField kSamplerFields[] = {
    {"use_beam_search", Neutral::kFalse},   {"typical_p", Neutral::kOne},
    {"xtc_probability", Neutral::kZero},    {"mirostat", Neutral::kZero},
    {"dry_multiplier", Neutral::kZero},     {"length_penalty", Neutral::kOne},
    {"prompt_logprobs", Neutral::kNone},    {"cache_salt", Neutral::kNone},
    {"skip_special_tokens", Neutral::kTrue}};
constexpr UnsupportedField kChatFields[] = {{"audio", Neutral::kNone},
                                            {"best_of", Neutral::kOne},
                                            {"web_search_options", Neutral::kNone},
                                            {"thinking_budget", Neutral::kNone},
                                            {"thinking_token_budget", Neutral::kNone},
                                            {"echo", Neutral::kFalse}};
constexpr UnsupportedField kCompletionFields[] = {{"prompt_embeds", Neutral::kNone},
                                                  {"suffix", Neutral::kEmpty}};

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
    case Neutral::kEmpty:
      return (value.is_string() && value.get_string().empty()) ||
             (value.is_array() && value.get_array().empty());
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

Status refuse_unless_neutral(const bj::value& body, std::span<const UnsupportedField> fields) {
  for (const UnsupportedField& row : fields) {
    const bj::value* value = json::find(body, row.field);
    if (value == nullptr || is_neutral(*value, row.neutral)) continue;
    const std::string field(row.field);
    return unsupported(field, "'" + field + "' is not supported with this value");
  }
  return ok_status();
}

Status refuse_unsupported(const bj::value& body) {
  FLOTILLA_TRY_STATUS(refuse_unless_neutral(body, kChatFields));
  FLOTILLA_TRY_STATUS(refuse_unless_neutral(body, kSamplerFields));
  return check_modalities(body);
}

Status refuse_unsupported_of_completion(const bj::value& body) {
  FLOTILLA_TRY_STATUS(refuse_unless_neutral(body, kSamplerFields));
  return refuse_unless_neutral(body, kCompletionFields);
}

}  // namespace flotilla::api
