#include "flotilla/serving/api_call.h"

#include "flotilla/api/anthropic_request.h"
#include "flotilla/api/completion_request.h"
#include "flotilla/api/responses_request.h"
#include "flotilla/serving/anthropic_answer.h"
#include "flotilla/serving/chat_stream.h"
#include "flotilla/serving/chat_whole.h"
#include "flotilla/serving/completion_answer.h"
#include "flotilla/serving/ids.h"
#include "flotilla/serving/responses_answer.h"

namespace flotilla::serving {
namespace {

api::ResponseHead head_of(const api::ChatRequest& job, std::string_view prefix, std::int64_t now) {
  return {.id = random_id(prefix),
          .model = job.model,
          .created = now,
          .logprobs = job.logprobs,
          .return_token_ids = job.return_token_ids,
          .include_usage = job.include_usage};
}

ApiCall one_job(api::ChatRequest job, std::unique_ptr<Answer> answer) {
  ApiCall call;
  call.stream = job.stream;
  call.jobs.push_back(std::move(job));
  call.answer = std::move(answer);
  return call;
}

Result<ApiCall> parse_chat(const boost::json::value& body, std::int64_t now) {
  FLOTILLA_TRY(api::ChatRequest job, api::parse_chat_request(body));
  api::ResponseHead head = head_of(job, "chatcmpl-", now);
  std::unique_ptr<Answer> answer;
  if (job.stream) {
    answer = std::make_unique<ChatStreamAnswer>(std::move(head), job.n, job.parallel_tool_calls);
  } else {
    answer = std::make_unique<ChatWholeAnswer>(std::move(head), job.n, job.parallel_tool_calls);
  }
  return one_job(std::move(job), std::move(answer));
}

Result<ApiCall> parse_completion(const boost::json::value& body, std::int64_t now) {
  FLOTILLA_TRY(api::CompletionRequest request, api::parse_completion_request(body));
  const api::ChatRequest& first = request.jobs.front();
  CompletionPlan plan{.stream = first.stream,
                      .per_prompt = first.n,
                      .kept_per_prompt = request.n,
                      .num_prompts = request.jobs.size()};
  if (request.echo) {
    for (const api::ChatRequest& job : request.jobs) plan.echoes.push_back(job.prompt);
  }
  api::ResponseHead head = head_of(first, "cmpl-", now);
  head.logprobs = request.logprobs;
  ApiCall call;
  call.stream = first.stream;
  call.jobs = std::move(request.jobs);
  call.answer = std::make_unique<CompletionAnswer>(std::move(head), std::move(plan));
  return call;
}

Result<ApiCall> parse_responses(const boost::json::value& body, std::int64_t now) {
  FLOTILLA_TRY(api::ResponsesRequest request, api::parse_responses_request(body));
  api::ResponsesHead head{.id = random_id("resp_"),
                          .model = request.job.model,
                          .created = now,
                          .settings = std::move(request.settings),
                          .logprobs = request.job.logprobs};
  auto answer = std::make_unique<ResponsesAnswer>(std::move(head), request.job.stream,
                                                  request.job.parallel_tool_calls);
  return one_job(std::move(request.job), std::move(answer));
}

Result<ApiCall> parse_message(const boost::json::value& body, const std::string& request_id) {
  FLOTILLA_TRY(api::ChatRequest job,
               api::parse_anthropic_request(body, api::AnthropicCall::kMessage));
  auto answer = std::make_unique<AnthropicAnswer>(
      api::AnthropicHead{.id = random_id("msg_"), .model = job.model}, job.stream,
      job.parallel_tool_calls, request_id);
  return one_job(std::move(job), std::move(answer));
}

Result<ApiCall> parse_count(const boost::json::value& body) {
  FLOTILLA_TRY(api::ChatRequest job,
               api::parse_anthropic_request(body, api::AnthropicCall::kCountTokens));
  return one_job(std::move(job), std::make_unique<TokenCountAnswer>());
}

}  // namespace

std::string_view route_name(ApiKind api) {
  switch (api) {
    case ApiKind::kChat:
      return "chat_completions";
    case ApiKind::kCompletions:
      return "completions";
    case ApiKind::kResponses:
      return "responses";
    case ApiKind::kMessages:
      return "messages";
    case ApiKind::kCountTokens:
      return "count_tokens";
  }
  return "unknown";
}

Result<ApiCall> parse_api_call(ApiKind api, const boost::json::value& body, std::int64_t now,
                               const std::string& request_id) {
  switch (api) {
    case ApiKind::kChat:
      return parse_chat(body, now);
    case ApiKind::kCompletions:
      return parse_completion(body, now);
    case ApiKind::kResponses:
      return parse_responses(body, now);
    case ApiKind::kMessages:
      return parse_message(body, request_id);
    case ApiKind::kCountTokens:
      return parse_count(body);
  }
  return Error{ErrorCode::kInternal, "an API that nobody parses"};
}

}  // namespace flotilla::serving
