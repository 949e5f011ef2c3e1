// An answer as a row of blocks, one open at a time: how Anthropic's and OpenAI's newer API show it.
#pragma once

#include <string>
#include <vector>

#include "flotilla/api/chat_response.h"

namespace flotilla::api {

struct AnswerBlock {
  enum class Kind { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  std::string text = {};     // for a call: its arguments, a JSON text
  std::string call_id = {};  // "call_..."
  std::string call_name = {};
  std::string id = {};                      // of the block itself, where the API has such
  std::vector<TokenLogprob> logprobs = {};  // of a text, when asked for
  bool complete = false;
};

}  // namespace flotilla::api
