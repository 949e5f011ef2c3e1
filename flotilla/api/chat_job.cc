// The canonical form for the link. Floating-point numbers travel as text made by to_chars and read
// by from_chars, and 64-bit unsigned ones as decimal text, because the JSON library rounds the
// former and splits the latter by size; the bit-contract needs every node to sample with the very
// same numbers.
#include <boost/json.hpp>
#include <charconv>
#include <cmath>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

template <class T>
std::string to_text(T value) {
  char buffer[40];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

template <class T>
Result<T> from_text(std::string_view text, std::string_view key) {
  T value{};
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    return invalid(std::string(key), "'" + std::string(key) + "' of the job is not a number");
  }
  return value;
}

template <class T>
Result<std::optional<T>> get_text(const bj::value& job, std::string_view key) {
  FLOTILLA_TRY(const auto text, json::get_string(job, key));
  if (!text) return std::optional<T>();
  FLOTILLA_TRY(const T value, from_text<T>(*text, key));
  return std::optional<T>(value);
}

template <class T>
Result<T> require_text(const bj::value& job, std::string_view key) {
  FLOTILLA_TRY(const std::string text, json::require_string(job, key));
  return from_text<T>(text, key);
}

Result<std::optional<double>> get_real(const bj::value& job, std::string_view key, double min,
                                       double max) {
  FLOTILLA_TRY(const auto value, get_text<double>(job, key));
  if (value && !(*value >= min && *value <= max)) {
    return invalid(std::string(key), "'" + std::string(key) + "' of the job is out of range");
  }
  return value;
}

Result<double> require_real(const bj::value& job, std::string_view key, double min, double max) {
  FLOTILLA_TRY(const auto value, get_real(job, key, min, max));
  if (!value) return invalid(std::string(key), "'" + std::string(key) + "' of the job is missing");
  return *value;
}

Result<const bj::array*> require_array(const bj::value& job, std::string_view key,
                                       std::size_t max_items) {
  const bj::value* value = json::find(job, key);
  if (value == nullptr || !value->is_array() || value->get_array().size() > max_items) {
    return invalid(std::string(key), "'" + std::string(key) +
                                         "' of the job must be an array of at most " +
                                         std::to_string(max_items));
  }
  return &value->get_array();
}

Result<TokenId> token_id(const bj::value& value, std::string_view key) {
  if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() > kMaxTokenId) {
    return invalid(std::string(key), "'" + std::string(key) + "' of the job must hold token ids");
  }
  return static_cast<TokenId>(value.get_int64());
}

// A prompt as it stands, or messages.
Status read_prompt(const bj::value& job, ChatRequest& request) {
  FLOTILLA_TRY(request.add_generation_prompt, json::require_bool(job, "add_generation_prompt"));
  FLOTILLA_TRY(request.continue_final_message, json::require_bool(job, "continue_final_message"));
  FLOTILLA_TRY(request.count_only, json::require_bool(job, "count_only"));
  if (const bj::value* prompt = json::find(job, "prompt")) {
    request.is_completion = true;
    if (prompt->is_string()) {
      FLOTILLA_TRY(request.prompt, json::require_string(job, "prompt"));
      return ok_status();
    }
    FLOTILLA_TRY(const bj::array* ids, require_array(job, "prompt", kMaxBodyValues));
    for (const bj::value& id : *ids) {
      FLOTILLA_TRY(const TokenId token, token_id(id, "prompt"));
      request.prompt_ids.push_back(token);
    }
    return ok_status();
  }
  FLOTILLA_TRY(const bj::array* messages, require_array(job, "messages", kMaxMessages));
  if (messages->empty()) return invalid("messages", "'messages' of the job is empty");
  for (const bj::value& message : *messages) {
    if (!message.is_object() || json::find(message, "role") == nullptr) {
      return invalid("messages", "'messages' of the job must hold objects with roles");
    }
  }
  request.messages = *messages;
  return ok_status();
}

Status read_conversation(const bj::value& job, ChatRequest& request) {
  FLOTILLA_TRY(request.model, json::require_string(job, "model"));
  FLOTILLA_TRY_STATUS(read_prompt(job, request));
  if (json::find(job, "tools") != nullptr) {
    FLOTILLA_TRY(const bj::array* tools, require_array(job, "tools", kMaxTools));
    request.tools = *tools;
  }
  FLOTILLA_TRY(request.tool_choice, json::require_string(job, "tool_choice"));
  FLOTILLA_TRY(const auto function, json::get_string(job, "tool_choice_function"));
  request.tool_choice_function = function.value_or("");
  if (json::find(job, "strict_tools") != nullptr) {
    FLOTILLA_TRY(const bj::array* strict, require_array(job, "strict_tools", kMaxTools));
    for (const bj::value& name : *strict) {
      if (!name.is_string()) {
        return invalid("strict_tools", "'strict_tools' of the job must hold names");
      }
      request.strict_tools.emplace_back(name.get_string().data(), name.get_string().size());
    }
  }
  FLOTILLA_TRY(request.parallel_tool_calls, json::require_bool(job, "parallel_tool_calls"));
  const bj::value* variables = json::find(job, "template_variables");
  if (variables == nullptr || !variables->is_object()) {
    return invalid("template_variables", "'template_variables' of the job must be an object");
  }
  request.template_variables = variables->get_object();
  return ok_status();
}

Status read_sampling(const bj::value& job, ChatRequest& request) {
  FLOTILLA_TRY(request.max_tokens, json::get_int(job, "max_tokens", 1, kMaxTokensLimit));
  FLOTILLA_TRY(request.min_tokens, json::require_int(job, "min_tokens", 0, kMaxTokensLimit));
  FLOTILLA_TRY(request.ignore_eos, json::require_bool(job, "ignore_eos"));
  FLOTILLA_TRY(request.temperature, get_real(job, "temperature", 0, 2));
  FLOTILLA_TRY(request.top_p, get_real(job, "top_p", 0, 1));
  FLOTILLA_TRY(request.min_p, get_real(job, "min_p", 0, 1));
  FLOTILLA_TRY(const auto top_k, json::get_int(job, "top_k", 0, kMaxTokenId));
  if (top_k) request.top_k = static_cast<int>(*top_k);
  FLOTILLA_TRY(request.presence_penalty, require_real(job, "presence_penalty", -2, 2));
  FLOTILLA_TRY(request.frequency_penalty, require_real(job, "frequency_penalty", -2, 2));
  FLOTILLA_TRY(request.repetition_penalty, require_real(job, "repetition_penalty", 0.01, 100));
  FLOTILLA_TRY(const bj::array* bias, require_array(job, "logit_bias", kMaxLogitBias));
  for (const bj::value& entry : *bias) {
    const bj::array* pair = entry.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[1].is_string()) {
      return invalid("logit_bias", "'logit_bias' of the job must hold pairs");
    }
    FLOTILLA_TRY(const TokenId id, token_id((*pair)[0], "logit_bias"));
    const bj::string& text = (*pair)[1].get_string();
    FLOTILLA_TRY(const double value, from_text<double>({text.data(), text.size()}, "logit_bias"));
    if (!(value >= -100 && value <= 100))
      return invalid("logit_bias", "'logit_bias' of the job is out of range");
    request.logit_bias.emplace_back(id, value);
  }
  FLOTILLA_TRY(request.seed, get_text<std::uint64_t>(job, "seed"));
  return ok_status();
}

Status read_output(const bj::value& job, ChatRequest& request) {
  FLOTILLA_TRY(request.stream, json::require_bool(job, "stream"));
  FLOTILLA_TRY(request.include_usage, json::require_bool(job, "include_usage"));
  FLOTILLA_TRY(const std::int64_t n, json::require_int(job, "n", 1, kMaxChoices));
  request.n = static_cast<int>(n);
  FLOTILLA_TRY(const bj::array* stops, require_array(job, "stop", kMaxStops));
  for (const bj::value& stop : *stops) {
    if (!stop.is_string() || stop.get_string().empty() ||
        stop.get_string().size() > kMaxStopBytes) {
      return invalid("stop", "'stop' of the job must hold short strings");
    }
    request.stop.emplace_back(stop.get_string().data(), stop.get_string().size());
  }
  FLOTILLA_TRY(const bj::array* ids, require_array(job, "stop_token_ids", kMaxStopTokenIds));
  for (const bj::value& id : *ids) {
    FLOTILLA_TRY(const TokenId token, token_id(id, "stop_token_ids"));
    request.stop_token_ids.push_back(token);
  }
  FLOTILLA_TRY(request.include_stop_string, json::require_bool(job, "include_stop_string"));
  FLOTILLA_TRY(request.logprobs, json::require_bool(job, "logprobs"));
  FLOTILLA_TRY(const std::int64_t top, json::require_int(job, "top_logprobs", 0, kMaxTopLogprobs));
  request.top_logprobs = static_cast<int>(top);
  FLOTILLA_TRY(request.return_token_ids, json::require_bool(job, "return_token_ids"));
  if (const bj::value* format = json::find(job, "output_format")) {
    FLOTILLA_TRY_STATUS(check_output_format(*format));
    request.output_format = *format;
  }
  FLOTILLA_TRY(request.sampling_seed, require_text<std::uint64_t>(job, "sampling_seed"));
  FLOTILLA_TRY(request.render_time, require_text<std::int64_t>(job, "render_time"));
  return ok_status();
}

}  // namespace

bj::value to_job_json(const ChatRequest& request) {
  bj::object job;
  job["model"] = request.model;
  if (!request.is_completion) {
    job["messages"] = request.messages;
  } else if (request.prompt_ids.empty()) {
    job["prompt"] = request.prompt;
  } else {
    bj::array ids;
    for (const TokenId id : request.prompt_ids) ids.emplace_back(id);
    job["prompt"] = std::move(ids);
  }
  job["add_generation_prompt"] = request.add_generation_prompt;
  job["continue_final_message"] = request.continue_final_message;
  job["count_only"] = request.count_only;
  if (!request.tools.is_null()) job["tools"] = request.tools;
  job["tool_choice"] = request.tool_choice;
  if (!request.tool_choice_function.empty())
    job["tool_choice_function"] = request.tool_choice_function;
  if (!request.strict_tools.empty()) {
    bj::array strict;
    for (const std::string& name : request.strict_tools) strict.emplace_back(name);
    job["strict_tools"] = std::move(strict);
  }
  job["parallel_tool_calls"] = request.parallel_tool_calls;
  job["template_variables"] = request.template_variables;
  job["stream"] = request.stream;
  job["include_usage"] = request.include_usage;
  job["n"] = request.n;
  if (request.max_tokens) job["max_tokens"] = *request.max_tokens;
  job["min_tokens"] = request.min_tokens;
  job["ignore_eos"] = request.ignore_eos;
  if (request.temperature) job["temperature"] = to_text(*request.temperature);
  if (request.top_p) job["top_p"] = to_text(*request.top_p);
  if (request.min_p) job["min_p"] = to_text(*request.min_p);
  if (request.top_k) job["top_k"] = *request.top_k;
  job["presence_penalty"] = to_text(request.presence_penalty);
  job["frequency_penalty"] = to_text(request.frequency_penalty);
  job["repetition_penalty"] = to_text(request.repetition_penalty);
  bj::array bias;
  for (const auto& [id, value] : request.logit_bias) {
    bj::array pair;
    pair.emplace_back(id);
    pair.emplace_back(to_text(value));
    bias.emplace_back(std::move(pair));
  }
  job["logit_bias"] = std::move(bias);
  if (request.seed) job["seed"] = to_text(*request.seed);
  bj::array stops;
  for (const std::string& stop : request.stop) stops.emplace_back(stop);
  job["stop"] = std::move(stops);
  bj::array ids;
  for (const TokenId id : request.stop_token_ids) ids.emplace_back(id);
  job["stop_token_ids"] = std::move(ids);
  job["include_stop_string"] = request.include_stop_string;
  job["logprobs"] = request.logprobs;
  job["top_logprobs"] = request.top_logprobs;
  job["return_token_ids"] = request.return_token_ids;
  if (!request.output_format.is_null()) job["output_format"] = request.output_format;
  job["sampling_seed"] = to_text(request.sampling_seed);
  job["render_time"] = to_text(request.render_time);
  return job;
}

Result<ChatRequest> from_job_json(const bj::value& job) {
  if (!job.is_object()) return invalid("", "the job must be a JSON object");
  ChatRequest request;
  FLOTILLA_TRY_STATUS(read_conversation(job, request));
  FLOTILLA_TRY_STATUS(read_sampling(job, request));
  FLOTILLA_TRY_STATUS(read_output(job, request));
  return request;
}

}  // namespace flotilla::api
