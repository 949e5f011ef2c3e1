// The body of POST /v1/responses, checked and turned into a job. Nothing is kept between requests:
// what needs a memory is refused by name.
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "flotilla/api/chat_request.h"
#include "flotilla/base/result.h"

namespace flotilla::api {

struct ResponsesRequest {
  ChatRequest job;
  // Members of the answer that repeat the request, as JSON text: `"temperature":0.5,"tools":[...]`.
  std::string settings;
};

Result<ResponsesRequest> parse_responses_request(const boost::json::value& body);

}  // namespace flotilla::api
