#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <limits>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

Status parse_min_tokens(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(const auto min_tokens, json::get_int(body, "min_tokens", 0, kMaxTokensLimit));
  request.min_tokens = min_tokens.value_or(0);
  if (request.max_tokens && request.min_tokens > *request.max_tokens) {
    return invalid("min_tokens", "'min_tokens' " + std::to_string(request.min_tokens) +
                                     " exceeds max_tokens " + std::to_string(*request.max_tokens));
  }
  FLOTILLA_TRY(const auto ignore_eos, json::get_bool(body, "ignore_eos"));
  request.ignore_eos = ignore_eos.value_or(false);
  return ok_status();
}

Status parse_logit_bias(const bj::value& body, ChatRequest& request) {
  const bj::value* bias = json::find(body, "logit_bias");
  if (bias == nullptr) return ok_status();
  if (!bias->is_object()) return invalid("logit_bias", "'logit_bias' must be an object");
  const bj::object& entries = bias->get_object();
  if (entries.size() > kMaxLogitBias) {
    return invalid("logit_bias", "'logit_bias' has " + std::to_string(entries.size()) +
                                     " entries; the limit is " + std::to_string(kMaxLogitBias));
  }
  for (const auto& entry : entries) {
    TokenId id = 0;
    const char* const end = entry.key().data() + entry.key().size();
    const auto read = std::from_chars(entry.key().data(), end, id);
    if (read.ec != std::errc() || read.ptr != end || id < 0) {
      return invalid("logit_bias", "the keys of 'logit_bias' must be token ids");
    }
    if (!entry.value().is_number())
      return invalid("logit_bias", "the values of 'logit_bias' must be numbers");
    const double value = entry.value().to_number<double>();
    if (!(value >= -100 && value <= 100)) {
      return invalid("logit_bias", "the values of 'logit_bias' must be between -100 and 100");
    }
    request.logit_bias.emplace_back(id, value);
  }
  // One order for one meaning, whatever the client's; two spellings of an id ("7", "07") contradict
  // each other.
  std::sort(request.logit_bias.begin(), request.logit_bias.end());
  for (std::size_t i = 1; i < request.logit_bias.size(); ++i) {
    if (request.logit_bias[i].first == request.logit_bias[i - 1].first) {
      return invalid("logit_bias", "'logit_bias' names a token id twice");
    }
  }
  return ok_status();
}

Status parse_seed(const bj::value& body, ChatRequest& request) {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHighest = std::numeric_limits<std::int64_t>::max();
  FLOTILLA_TRY(const auto seed, json::get_int(body, "seed", kLowest, kHighest));
  // -1 is the customary spelling of "any seed"; other negative numbers are seeds like the rest.
  if (seed && *seed != -1) request.seed = static_cast<std::uint64_t>(*seed);
  return ok_status();
}

}  // namespace

Status add_stop(const bj::value& value, const std::string& where, ChatRequest& request) {
  if (!value.is_string()) return invalid(where, "'" + where + "' must be a string");
  const bj::string& text = value.get_string();
  if (text.empty()) return invalid(where, "'" + where + "' must not be empty");
  if (text.size() > kMaxStopBytes) {
    return invalid(where, "'" + where + "' of " + std::to_string(text.size()) +
                              " bytes exceeds the limit of " + std::to_string(kMaxStopBytes));
  }
  request.stop.emplace_back(text.data(), text.size());
  return ok_status();
}

namespace {

Status parse_stops(const bj::value& body, ChatRequest& request) {
  if (const bj::value* stop = json::find(body, "stop")) {
    if (stop->is_array()) {
      const bj::array& items = stop->get_array();
      if (items.size() > kMaxStops) {
        return invalid("stop", "'stop' has " + std::to_string(items.size()) +
                                   " strings; the limit is " + std::to_string(kMaxStops));
      }
      for (std::size_t i = 0; i < items.size(); ++i) {
        FLOTILLA_TRY_STATUS(add_stop(items[i], index_path("stop", i), request));
      }
    } else {
      FLOTILLA_TRY_STATUS(add_stop(*stop, "stop", request));
    }
  }
  if (const bj::value* ids = json::find(body, "stop_token_ids")) {
    if (!ids->is_array() || ids->get_array().size() > kMaxStopTokenIds) {
      return invalid("stop_token_ids", "'stop_token_ids' must be an array of at most " +
                                           std::to_string(kMaxStopTokenIds) + " token ids");
    }
    for (const bj::value& id : ids->get_array()) {
      if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > kMaxTokenId) {
        return invalid("stop_token_ids", "'stop_token_ids' must hold token ids");
      }
      request.stop_token_ids.push_back(static_cast<TokenId>(id.get_int64()));
    }
  }
  FLOTILLA_TRY(const auto include, json::get_bool(body, "include_stop_str_in_output"));
  request.include_stop_string = include.value_or(false);
  return ok_status();
}

}  // namespace

Status parse_max_tokens(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY(const auto newer, json::get_int(body, "max_completion_tokens", 1, kMaxTokensLimit));
  FLOTILLA_TRY(const auto older, json::get_int(body, "max_tokens", 1, kMaxTokensLimit));
  request.max_tokens = newer ? newer : older;
  return ok_status();
}

Status parse_sampling(const bj::value& body, ChatRequest& request) {
  FLOTILLA_TRY_STATUS(parse_min_tokens(body, request));
  FLOTILLA_TRY(request.temperature, json::get_double(body, "temperature", 0, 2));
  FLOTILLA_TRY(request.top_p, json::get_double(body, "top_p", 0, 1));
  FLOTILLA_TRY(request.min_p, json::get_double(body, "min_p", 0, 1));
  FLOTILLA_TRY(const auto top_k, json::get_int(body, "top_k", -1, kMaxTokenId));
  if (top_k) request.top_k = static_cast<int>(std::max<std::int64_t>(*top_k, 0));
  FLOTILLA_TRY(const auto presence, json::get_double(body, "presence_penalty", -2, 2));
  request.presence_penalty = presence.value_or(0);
  FLOTILLA_TRY(const auto frequency, json::get_double(body, "frequency_penalty", -2, 2));
  request.frequency_penalty = frequency.value_or(0);
  FLOTILLA_TRY(const auto repetition, json::get_double(body, "repetition_penalty", 0.01, 100));
  request.repetition_penalty = repetition.value_or(1);
  FLOTILLA_TRY_STATUS(parse_logit_bias(body, request));
  FLOTILLA_TRY_STATUS(parse_seed(body, request));
  return parse_stops(body, request);
}

}  // namespace flotilla::api
