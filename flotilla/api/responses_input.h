// Items of OpenAI's Responses API to the messages of a job. Internal to api/.
#pragma once

#include <boost/json/value.hpp>

#include "flotilla/base/result.h"

namespace flotilla::api {

// `instructions` and `input` of the body. Reasoning, text and calls that follow each other become
// one turn of the assistant.
Result<boost::json::value> parse_responses_input(const boost::json::value& body);

}  // namespace flotilla::api
