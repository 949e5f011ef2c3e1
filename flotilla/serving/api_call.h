// From the body of any of the APIs to jobs and the answer that they make.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/api/chat_request.h"
#include "flotilla/base/result.h"
#include "flotilla/serving/answer.h"

namespace flotilla::serving {

enum class ApiKind { kChat, kCompletions, kResponses, kMessages, kCountTokens };

// The name in the log.
std::string_view route_name(ApiKind api);

struct ApiCall {
  // All with the same number of choices; those of job i have the numbers from i * n.
  std::vector<api::ChatRequest> jobs;
  bool stream = false;
  std::unique_ptr<Answer> answer;
};

// `now` in unix seconds; `request_id` is repeated in errors where the API has a place for it.
Result<ApiCall> parse_api_call(ApiKind api, const boost::json::value& body, std::int64_t now,
                               const std::string& request_id);

}  // namespace flotilla::serving
