// Any bytes as the body of POST /v1/chat/completions: refused by name, or a request that survives
// the link unchanged.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "flotilla/api/chat_request.h"
#include "flotilla/api/errors.h"
#include "flotilla/api/limits.h"
#include "flotilla/base/check.h"
#include "flotilla/json/json.h"

using namespace flotilla;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto body = json::parse(text, {.max_bytes = 1u << 20, .max_depth = api::kMaxBodyDepth});
  if (!body.ok()) {
    FLOTILLA_CHECK(json::parse(api::render_error(body.error())).ok(),
                   "an error must render as JSON");
    return 0;
  }
  auto request = api::parse_chat_request(*body);
  if (!request.ok()) {
    const ErrorCode code = request.error().code;
    FLOTILLA_CHECK(code == ErrorCode::kInvalidArgument || code == ErrorCode::kUnsupported,
                   "a body can only be wrong or unsupported");
    FLOTILLA_CHECK(!request.error().message.empty(), "an error must say what is wrong");
    FLOTILLA_CHECK(json::parse(api::render_error(request.error())).ok(),
                   "an error must render as JSON");
    return 0;
  }
  request->sampling_seed = size * 0x9E3779B97F4A7C15u;
  const boost::json::value job = api::to_job_json(*request);
  const auto back = api::from_job_json(job);
  FLOTILLA_CHECK(back.ok(), "a job that was made here must read back");
  FLOTILLA_CHECK(*back == *request, "a job must read back equal");
  // As text too: what the coordinator sends must be something that a node's parser takes.
  const auto reparsed = json::parse(boost::json::serialize(job));
  FLOTILLA_CHECK(reparsed.ok(), "a job must be JSON within the parser's limits");
  const auto travelled = api::from_job_json(*reparsed);
  FLOTILLA_CHECK(travelled.ok(), "a job must survive the journey");
  FLOTILLA_CHECK(travelled->temperature == request->temperature &&
                     travelled->logit_bias == request->logit_bias &&
                     travelled->stop == request->stop &&
                     travelled->sampling_seed == request->sampling_seed,
                 "sampling must survive the journey bit by bit");
  return 0;
}
