// What a model is asked to do, whichever API the client speaks: the one job that travels inside the
// fleet, as canonical JSON. And the body of POST /v1/chat/completions, whose form it has. Unknown
// fields are ignored, known ones with bad values refused by name, null equals absent.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"

namespace flotilla::api {

struct ChatRequest {
  std::string model;
  // Normalised: roles system, user, assistant, tool (developer and function mapped); arguments of
  // calls as objects, or the client's text where it is no JSON object; every call with an id. An
  // empty content is null beside calls and "" without them; one text part is its text, several stay
  // an array of text parts.
  boost::json::value messages;
  boost::json::value tools;               // array or null; null too when tool_choice is "none"
  std::string tool_choice = "auto";       // "none", "auto", "required", or "function"
  std::string tool_choice_function;       // with "function"
  std::vector<std::string> strict_tools;  // names of tools whose schema must be honoured
  bool parallel_tool_calls = true;
  boost::json::object
      template_variables;  // chat_template_kwargs, enable_thinking, from reasoning_effort

  bool add_generation_prompt = true;
  // The last message is the assistant's, and the answer goes on where its text ends.
  bool continue_final_message = false;

  // POST /v1/completions: `prompt` or `prompt_ids` as they stand, control tokens included, in place
  // of messages; what the model writes is content and nothing else.
  bool is_completion = false;
  std::string prompt;
  std::vector<TokenId> prompt_ids;

  bool count_only = false;  // tell the length of the prompt, generate nothing
  bool stream = false;
  bool include_usage = false;
  int n = 1;
  std::optional<std::int64_t> max_tokens;  // max_completion_tokens wins over max_tokens
  std::int64_t min_tokens = 0;
  bool ignore_eos = false;

  // Absent: the model's own default (generation_config), else OpenAI's.
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;  // 0 and -1: off
  double presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  std::vector<std::pair<TokenId, double>> logit_bias;
  std::optional<std::uint64_t> seed;

  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool include_stop_string = false;
  bool logprobs = false;
  int top_logprobs = 0;
  bool return_token_ids = false;
  // What the answer must look like: null, or {"kind": "json_object" | "json_schema" | "regex" |
  // "choice" | "grammar", "value": the schema, text or list, "param": where the client wrote it}.
  boost::json::value output_format;

  // Fixed at admission (see design: sampling_seed, render_time); present in the fleet's form.
  std::uint64_t sampling_seed = 0;
  std::int64_t render_time = 0;  // unix seconds

  bool operator==(const ChatRequest&) const = default;
};

// Errors carry `param`, e.g. "messages[0].role".
Result<ChatRequest> parse_chat_request(const boost::json::value& body);

// Canonical form for the link; from_job_json(to_job_json(r)) == r.
boost::json::value to_job_json(const ChatRequest& request);
Result<ChatRequest> from_job_json(const boost::json::value& job);

}  // namespace flotilla::api
