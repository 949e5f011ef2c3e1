#include "flotilla/api/completion_request.h"

#include <boost/json.hpp>

#include "flotilla/api/limits.h"
#include "flotilla/api/request_fields.h"
#include "flotilla/json/json.h"

namespace flotilla::api {
namespace bj = boost::json;
namespace {

constexpr std::int64_t kDefaultMaxTokens = 16;  // OpenAI's

Result<std::vector<TokenId>> parse_ids(const bj::array& items, const std::string& where) {
  std::vector<TokenId> ids;
  for (const bj::value& item : items) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() > kMaxTokenId) {
      return invalid(where, "'" + where + "' must hold token ids, or strings, and not both");
    }
    ids.push_back(static_cast<TokenId>(item.get_int64()));
  }
  if (ids.empty()) return invalid(where, "'" + where + "' is an empty list of token ids");
  return ids;
}

// One prompt: a text or token ids.
Status set_prompt(const bj::value& prompt, const std::string& where, ChatRequest& job) {
  job.is_completion = true;
  if (prompt.is_string()) {
    job.prompt = std::string(std::string_view(prompt.get_string()));
    return ok_status();
  }
  if (!prompt.is_array()) return invalid(where, "'" + where + "' must be a text or token ids");
  FLOTILLA_TRY(job.prompt_ids, parse_ids(prompt.get_array(), where));
  return ok_status();
}

// A text, texts, token ids, or lists of token ids.
Result<std::vector<ChatRequest>> parse_prompts(const bj::value& body) {
  const bj::value* prompt = json::find(body, "prompt");
  if (prompt == nullptr) return invalid("prompt", "'prompt' is missing");
  const bj::array* list = prompt->if_array();
  const bool is_one = list == nullptr || (!list->empty() && list->front().is_number());
  std::vector<ChatRequest> jobs(1);
  if (is_one) {
    FLOTILLA_TRY_STATUS(set_prompt(*prompt, "prompt", jobs[0]));
    return jobs;
  }
  if (list->empty() || list->size() > kMaxPrompts) {
    return invalid("prompt", "'prompt' has " + std::to_string(list->size()) + " entries; 1 to " +
                                 std::to_string(kMaxPrompts) + " are taken");
  }
  jobs.resize(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    FLOTILLA_TRY_STATUS(set_prompt((*list)[i], index_path("prompt", i), jobs[i]));
  }
  return jobs;
}

// max_tokens 0 asks for nothing but the prompt's length, and its text with echo.
Status parse_length(const bj::value& body, ChatRequest& shared) {
  FLOTILLA_TRY(const auto given, json::get_int(body, "max_tokens", 0, kMaxTokensLimit));
  const std::int64_t max_tokens = given.value_or(kDefaultMaxTokens);
  shared.count_only = max_tokens == 0;
  if (max_tokens > 0) shared.max_tokens = max_tokens;
  return ok_status();
}

Status parse_choices(const bj::value& body, CompletionRequest& out, ChatRequest& shared) {
  FLOTILLA_TRY(const auto n, json::get_int(body, "n", 1, kMaxChoices));
  FLOTILLA_TRY(const auto best_of, json::get_int(body, "best_of", 1, kMaxChoices));
  out.n = static_cast<int>(n.value_or(1));
  shared.n = static_cast<int>(best_of.value_or(out.n));
  if (shared.n < out.n) {
    return invalid("best_of", "'best_of' " + std::to_string(shared.n) + " is less than 'n' " +
                                  std::to_string(out.n));
  }
  if (shared.n > out.n && shared.stream) {
    return invalid("best_of", "'best_of' above 'n' cannot be streamed");
  }
  return ok_status();
}

Status parse_logprobs(const bj::value& body, CompletionRequest& out, ChatRequest& shared) {
  FLOTILLA_TRY(const auto logprobs, json::get_int(body, "logprobs", 0, kMaxTopLogprobs));
  out.logprobs = logprobs.has_value();
  shared.top_logprobs = static_cast<int>(logprobs.value_or(0));
  shared.logprobs = out.logprobs || shared.n > out.n;
  FLOTILLA_TRY(const auto ids, json::get_bool(body, "return_token_ids"));
  shared.return_token_ids = ids.value_or(false);
  FLOTILLA_TRY(const auto echo, json::get_bool(body, "echo"));
  out.echo = echo.value_or(false);
  if (!out.echo) return ok_status();
  if (out.logprobs) {
    return unsupported("echo", "'echo' with 'logprobs' is not supported: the prompt is not scored");
  }
  for (const ChatRequest& job : out.jobs) {
    if (!job.prompt_ids.empty()) {
      return unsupported("echo", "'echo' of token ids is not supported: send the prompt as text");
    }
  }
  return ok_status();
}

}  // namespace

Result<CompletionRequest> parse_completion_request(const bj::value& body) {
  if (!body.is_object()) return invalid("", "the body must be a JSON object");
  CompletionRequest out;
  ChatRequest shared;
  FLOTILLA_TRY_STATUS(parse_model(body, shared));
  FLOTILLA_TRY(out.jobs, parse_prompts(body));
  FLOTILLA_TRY_STATUS(refuse_unsupported_of_completion(body));
  FLOTILLA_TRY_STATUS(parse_length(body, shared));
  FLOTILLA_TRY_STATUS(parse_stream(body, shared));
  FLOTILLA_TRY_STATUS(parse_choices(body, out, shared));
  FLOTILLA_TRY_STATUS(parse_sampling(body, shared));
  FLOTILLA_TRY_STATUS(parse_output_format(body, shared));
  FLOTILLA_TRY_STATUS(parse_logprobs(body, out, shared));
  const std::size_t total = out.jobs.size() * static_cast<std::size_t>(shared.n);
  if (total > kMaxTotalChoices) {
    return invalid("n", "'n' or 'best_of' for each prompt makes " + std::to_string(total) +
                            " choices; the limit is " + std::to_string(kMaxTotalChoices));
  }
  shared.tool_choice = "none";
  shared.is_completion = true;
  for (ChatRequest& job : out.jobs) {
    ChatRequest whole = shared;
    whole.prompt = std::move(job.prompt);
    whole.prompt_ids = std::move(job.prompt_ids);
    job = std::move(whole);
  }
  return out;
}

}  // namespace flotilla::api
