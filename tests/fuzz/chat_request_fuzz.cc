// Any bytes as the body of a request of every API: refused by name, or a job that survives the link
// unchanged.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "flotilla/api/anthropic_request.h"
#include "flotilla/api/chat_request.h"
#include "flotilla/api/completion_request.h"
#include "flotilla/api/errors.h"
#include "flotilla/api/limits.h"
#include "flotilla/api/responses_request.h"
#include "flotilla/base/check.h"
#include "flotilla/json/json.h"

using namespace flotilla;

namespace {

void check_error(const Error& error) {
  FLOTILLA_CHECK(error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kUnsupported,
                 "a body can only be wrong or unsupported");
  FLOTILLA_CHECK(!error.message.empty(), "an error must say what is wrong");
  FLOTILLA_CHECK(json::parse(api::render_error(error)).ok(), "an error must render as JSON");
  const auto shape = api::anthropic_shape(api::error_shape(error));
  FLOTILLA_CHECK(json::parse(api::render_anthropic_error(shape, error.message, "r")).ok(),
                 "an error must render as JSON");
}

void check_job(api::ChatRequest& request, std::size_t size) {
  request.sampling_seed = size * 0x9E3779B97F4A7C15u;
  const boost::json::value job = api::to_job_json(request);
  const auto back = api::from_job_json(job);
  FLOTILLA_CHECK(back.ok(), "a job that was made here must read back");
  FLOTILLA_CHECK(*back == request, "a job must read back equal");
  // As text too: what the coordinator sends must be something that a node's parser takes.
  const auto reparsed = json::parse(boost::json::serialize(job));
  FLOTILLA_CHECK(reparsed.ok(), "a job must be JSON within the parser's limits");
  const auto travelled = api::from_job_json(*reparsed);
  FLOTILLA_CHECK(travelled.ok(), "a job must survive the journey");
  FLOTILLA_CHECK(travelled->temperature == request.temperature &&
                     travelled->logit_bias == request.logit_bias &&
                     travelled->stop == request.stop && travelled->prompt == request.prompt &&
                     travelled->prompt_ids == request.prompt_ids &&
                     travelled->sampling_seed == request.sampling_seed,
                 "sampling must survive the journey bit by bit");
}

void check(Result<api::ChatRequest> request, std::size_t size) {
  request.ok() ? check_job(*request, size) : check_error(request.error());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto body = json::parse(text, {.max_bytes = 1u << 20, .max_depth = api::kMaxBodyDepth});
  if (!body.ok()) {
    FLOTILLA_CHECK(json::parse(api::render_error(body.error())).ok(),
                   "an error must render as JSON");
    return 0;
  }
  check(api::parse_chat_request(*body), size);
  check(api::parse_anthropic_request(*body, api::AnthropicCall::kMessage), size);
  check(api::parse_anthropic_request(*body, api::AnthropicCall::kCountTokens), size);
  auto completion = api::parse_completion_request(*body);
  if (completion.ok()) {
    for (api::ChatRequest& job : completion->jobs) check_job(job, size);
  } else {
    check_error(completion.error());
  }
  auto response = api::parse_responses_request(*body);
  if (response.ok()) {
    check_job(response->job, size);
    FLOTILLA_CHECK(json::parse("{" + response->settings + "}").ok(), "settings must be JSON");
  } else {
    check_error(response.error());
  }
  return 0;
}
