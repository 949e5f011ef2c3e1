// The body of POST /v1/messages and /v1/messages/count_tokens, checked and turned into a job.
#pragma once

#include <boost/json/value.hpp>

#include "flotilla/api/chat_request.h"
#include "flotilla/base/result.h"

namespace flotilla::api {

enum class AnthropicCall {
  kMessage,
  kCountTokens,  // needs no max_tokens; the job only counts
};

// Unknown fields are ignored, known ones with bad values refused by name.
Result<ChatRequest> parse_anthropic_request(const boost::json::value& body, AnthropicCall call);

}  // namespace flotilla::api
