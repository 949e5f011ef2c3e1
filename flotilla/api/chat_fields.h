// Parts of parse_chat_request, one function per group of fields. Internal to api/.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "flotilla/api/chat_request.h"
#include "flotilla/base/result.h"

namespace flotilla::api {

// "messages[3]"
std::string index_path(std::string_view array, std::size_t index);
Error invalid(std::string param, std::string message);
Error unsupported(std::string param, std::string message);

// messages.cc: `body.messages`, normalised as the header of ChatRequest says.
Result<boost::json::value> parse_messages(const boost::json::value& body);

// tools.cc: tools, functions, tool_choice, function_call, parallel_tool_calls.
Status parse_tools(const boost::json::value& body, ChatRequest& request);

// sampling_fields.cc: everything that steers sampling and length.
Status parse_sampling(const boost::json::value& body, ChatRequest& request);

// output_format.cc: response_format, structured_outputs, guided_* and their like.
Status parse_output_format(const boost::json::value& body, ChatRequest& request);
// The form that ChatRequest keeps, as it comes from another machine.
Status check_output_format(const boost::json::value& form);

// unsupported.cc: known fields that would change the answer and that nothing here can honour.
Status refuse_unsupported(const boost::json::value& body);

}  // namespace flotilla::api
