// The script of a ScriptedEngine: what to answer to which request, and when. Format:
// docs/scripted-engine.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/error.h"
#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/chat/output_parser.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

struct ScriptStep {
  enum class Kind { kToken, kEnd, kWait, kHang, kFail, kEcho };
  enum class Echo { kSeed, kChoice, kUser, kPromptTokens };
  Kind kind = Kind::kToken;
  std::chrono::microseconds delay{0};  // before the step
  std::string bytes = {};              // of a token; need not be whole characters
  bool special = false;                // `bytes` is the literal of a control token
  std::optional<TokenId> id = {};      // else derived from the bytes
  double logprob = -0.1;
  Echo echo = Echo::kSeed;
  Error error = {};  // kFail
};

struct ScriptRule {
  // All that are given must hold.
  std::optional<std::string> model;   // equal to the engine's model
  std::optional<std::string> user;    // part of the last user message
  std::optional<std::string> prompt;  // part of the whole prompt
  std::optional<std::int64_t> choice;
  std::optional<std::int64_t> times;  // the rule is used up after so many requests

  std::optional<Error> refuse;  // prepare() fails with this
  std::string prompt_suffix;    // as if the template had ended the prompt so
  bool loop = false;            // begin again after the last step, without end
  FinishReason finish = FinishReason::kStop;
  std::vector<ScriptStep> steps;
};

struct Script {
  std::vector<std::string> models{"scripted"};
  std::string digest;  // hex SHA-256 of the script's text
  std::int64_t context_length = 4096;
  std::int64_t max_concurrent = 64;
  std::int64_t max_waiting = 256;
  chat::OutputSyntax syntax = chat::OutputSyntax::kGemma4;
  std::vector<ScriptRule> rules;  // the first that matches answers
};

// Errors name the path inside the script ("rules[1].steps[0].delay_ms").
Result<Script> parse_script(std::string_view text);
Result<Script> load_script(const std::string& path);

// The id of a token that the script did not number: the same text gives the same id in every
// script.
TokenId scripted_token_id(std::string_view bytes, bool special);

}  // namespace flotilla::engine
