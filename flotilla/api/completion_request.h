// The body of POST /v1/completions, checked: one job for each prompt. The same rules as for chat.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <vector>

#include "flotilla/api/chat_request.h"
#include "flotilla/base/result.h"

namespace flotilla::api {

struct CompletionRequest {
  // In the order of the prompts. `n` of each is what is generated: best_of where that is more.
  std::vector<ChatRequest> jobs;
  int n = 1;              // choices per prompt that the client gets: those of the likeliest tokens
  bool logprobs = false;  // asked for by the client; a choice among best_of needs them anyway
  bool echo = false;      // every answer begins with its prompt, which then is text
};

Result<CompletionRequest> parse_completion_request(const boost::json::value& body);

}  // namespace flotilla::api
