// Messages of Anthropic's form to those of a job. Internal to api/.
#pragma once

#include <boost/json/value.hpp>

#include "flotilla/base/result.h"

namespace flotilla::api {

// `system` and `messages` of the body. Neighbouring turns of one role become one, results of tools
// become messages of their own, thinking goes with its turn.
Result<boost::json::value> parse_anthropic_messages(const boost::json::value& body);

}  // namespace flotilla::api
