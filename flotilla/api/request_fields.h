// Parts of the request parsers, one function per group of fields. Internal to api/.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/api/chat_request.h"
#include "flotilla/base/result.h"

namespace flotilla::api {

// "messages[3]"
std::string index_path(std::string_view array, std::size_t index);
Error invalid(std::string param, std::string message);
Error unsupported(std::string param, std::string message);

// chat_request.cc: what several APIs spell alike.
Status parse_model(const boost::json::value& body, ChatRequest& request);
// `stream` and `stream_options` of chat and text completions.
Status parse_stream(const boost::json::value& body, ChatRequest& request);
Status set_reasoning_effort(std::string_view effort, const std::string& param,
                            ChatRequest& request);
// Refuses, under the name `param`, a last message that cannot be gone on with.
Status check_continuation(const ChatRequest& request, const std::string& param);

// messages.cc: `body.messages`, normalised as the header of ChatRequest says.
Result<boost::json::value> parse_messages(const boost::json::value& body);
// Arguments of a replayed call: an object, or the text where it is none. `arguments` may be null.
Result<boost::json::value> parse_arguments(const boost::json::value* arguments,
                                           const std::string& where);
// {"id", "type", "function"}
boost::json::value call_form(std::string_view id, std::string_view name,
                             boost::json::value arguments);
// Several text parts stay an array, one is its text, none are "".
boost::json::value content_form(boost::json::array parts);
boost::json::value text_part(std::string_view text);
// A string member of at most kMaxNameBytes.
Result<std::optional<std::string>> get_name(const boost::json::value& object, std::string_view key,
                                            std::string_view where);

// tools.cc
// The tools of a request, gathered before it is known which of them may be used.
struct ToolList {
  boost::json::array tools = {};
  std::vector<std::string> strict = {};  // names

  bool has(std::string_view name) const;
  // `function` has name, description, parameters, strict and perhaps more.
  Status add(const boost::json::value& function, const std::string& where);
};
// Checks type and size of a list of tools.
Result<const boost::json::array*> tool_array(const boost::json::value& tools,
                                             const std::string& field);
// "none", "auto" or "required".
Status choose_word(std::string_view field, std::string_view word, const ToolList& list,
                   ChatRequest& request);
Status choose_function(const std::string& where, std::string name, const ToolList& list,
                       ChatRequest& request);
// {"mode", "tools"}: forgets all but the tools named.
Status keep_allowed(const boost::json::value& allowed, const std::string& where, ToolList& list,
                    ChatRequest& request);
// Hands the tools over, none with the choice "none".
void take_tools(ToolList list, ChatRequest& request);
// tools, functions, tool_choice, function_call, parallel_tool_calls.
Status parse_tools(const boost::json::value& body, ChatRequest& request);

// sampling_fields.cc
// max_completion_tokens, max_tokens: at least 1.
Status parse_max_tokens(const boost::json::value& body, ChatRequest& request);
// Everything else that steers sampling and length; max_tokens is known already.
Status parse_sampling(const boost::json::value& body, ChatRequest& request);
Status add_stop(const boost::json::value& value, const std::string& where, ChatRequest& request);

// output_format.cc: response_format, structured_outputs, guided_* and their like.
Status parse_output_format(const boost::json::value& body, ChatRequest& request);
// The form that ChatRequest keeps, made here or as it comes from another machine.
boost::json::value output_form(std::string_view kind, boost::json::value value,
                               std::string_view param);
// A schema: an object, a boolean, or a JSON text of one.
Result<boost::json::value> schema_form(const boost::json::value& schema, const std::string& param);
Status check_output_format(const boost::json::value& form);

// unsupported.cc: known fields that would change the answer and that nothing here can honour.
// A field is refused unless it is absent, null, or has the value that changes nothing.
enum class Neutral { kNone, kFalse, kTrue, kZero, kOne, kEmpty };
struct UnsupportedField {
  std::string_view field;
  Neutral neutral;
};
Status refuse_unless_neutral(const boost::json::value& body,
                             std::span<const UnsupportedField> fields);
Status refuse_unsupported(const boost::json::value& body);
Status refuse_unsupported_of_completion(const boost::json::value& body);

}  // namespace flotilla::api
