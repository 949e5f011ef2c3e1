#include "flotilla/sampling/sampling_params.h"

#include <string>
#include <string_view>

namespace flotilla::sampling {
namespace {

std::string short_number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// Written so that NaN fails.
Status check_range(std::string_view name, double value, double min, double max) {
  if (value >= min && value <= max) return ok_status();
  return Error{ErrorCode::kInvalidArgument,
               std::string(name) + " " + short_number(value) + " is not between " +
                   short_number(min) + " and " + short_number(max),
               std::string(name)};
}

}  // namespace

Status validate(const SamplingParams& params, std::int64_t vocab_size) {
  FLOTILLA_TRY_STATUS(check_range("temperature", params.temperature, 0, 1e9));
  FLOTILLA_TRY_STATUS(check_range("top_p", params.top_p, 0, 1));
  if (params.top_p == 0) {
    return Error{ErrorCode::kInvalidArgument, "top_p 0 leaves no token to choose", "top_p"};
  }
  FLOTILLA_TRY_STATUS(check_range("top_k", params.top_k, 0, 2'147'483'647));
  FLOTILLA_TRY_STATUS(check_range("min_p", params.min_p, 0, 1));
  FLOTILLA_TRY_STATUS(check_range("presence_penalty", params.presence_penalty, -2, 2));
  FLOTILLA_TRY_STATUS(check_range("frequency_penalty", params.frequency_penalty, -2, 2));
  FLOTILLA_TRY_STATUS(check_range("repetition_penalty", params.repetition_penalty, 0.01, 100));
  if (params.logit_bias.size() > kMaxLogitBias) {
    return Error{ErrorCode::kInvalidArgument,
                 "logit_bias has " + std::to_string(params.logit_bias.size()) +
                     " entries, more than " + std::to_string(kMaxLogitBias),
                 "logit_bias"};
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || (vocab_size > 0 && id >= vocab_size)) {
      return Error{ErrorCode::kInvalidArgument,
                   "logit_bias names token " + std::to_string(id) + ", the vocabulary has " +
                       std::to_string(vocab_size),
                   "logit_bias"};
    }
    FLOTILLA_TRY_STATUS(check_range("logit_bias", bias, -100, 100));
  }
  return ok_status();
}

}  // namespace flotilla::sampling
