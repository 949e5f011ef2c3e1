// From generated tokens to events: detokenizer, output parser, stop strings, counting. Shared by
// ModelEngine and ScriptedEngine, so that both end, cut and count alike. One per generation; owned
// by the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/error.h"
#include "flotilla/chat/output_parser.h"
#include "flotilla/engine/stop_matcher.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

// What one token contributes: text, then possibly the literal of a control token.
struct TokenText {
  std::string text;     // complete UTF-8
  std::string special;  // "<|channel>"
};

// Turns ids into text as they come. Stateful: characters may span tokens.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual TokenText push(TokenId id) = 0;
  virtual std::string finish() = 0;  // what is still held back
};

class OutputPipeline {
 public:
  OutputPipeline(const ChatJob& job, std::int64_t prompt_tokens,
                 std::unique_ptr<chat::OutputParser> parser, std::unique_ptr<TokenDecoder> decoder);

  // Takes the next generated token. True when a stop string is complete: the caller finishes with
  // kStop and generates no more.
  bool push(TokenId id, std::optional<TokenLogprob> logprob = std::nullopt);
  // Takes the token that ended the generation: counted and reported, its text is not part of the
  // output.
  void push_end(TokenId id, std::optional<TokenLogprob> logprob = std::nullopt);
  // Ends the output; what was held back is released first. A stop string completed by that text
  // turns kStop and kLength into kStop with matched_stop.
  void finish(FinishReason reason, std::optional<Error> error = std::nullopt);

  // True when take_event() would carry anything.
  bool has_event() const;
  // Everything since the last call as one event.
  TokenEvent take_event(RequestId request);

  std::int64_t num_tokens() const { return usage_.completion_tokens; }
  bool finished() const { return finished_; }
  const Usage& usage() const { return usage_; }
  void set_cached_tokens(std::int64_t count) { usage_.cached_tokens = count; }

 private:
  void count(TokenId id, std::optional<TokenLogprob> logprob);
  void feed(std::string_view text, std::string_view special);
  void add(std::vector<chat::OutputDelta> deltas);
  void append(chat::OutputDelta delta);
  void attribute_tokens(chat::Channel channel);

  const std::int64_t min_tokens_;
  const bool wants_logprobs_;
  std::unique_ptr<chat::OutputParser> parser_;
  std::unique_ptr<TokenDecoder> decoder_;
  StopMatcher matcher_;
  Usage usage_;
  std::int64_t unattributed_ = 0;  // tokens that produced no visible piece yet
  bool finished_ = false;
  std::uint32_t next_first_index_ = 0;
  TokenEvent event_;
};

}  // namespace flotilla::engine
