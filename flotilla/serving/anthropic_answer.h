// Answers of POST /v1/messages and /v1/messages/count_tokens.
#pragma once

#include "flotilla/api/anthropic_response.h"
#include "flotilla/serving/answer.h"
#include "flotilla/serving/block_sequence.h"

namespace flotilla::serving {

class AnthropicAnswer final : public Answer, private BlockSequence::Listener {
 public:
  AnthropicAnswer(api::AnthropicHead head, bool stream, bool parallel_calls,
                  std::string request_id);

  Status add(ChatEvent& event, std::string& out) override;
  void end(const api::Usage& usage, std::string& out) override;
  void append_error(const Error& error, std::string& out) override;
  std::string_view keep_alive_frame() const override { return api::kPingFrame; }

 private:
  void on_open(std::size_t index, api::AnswerBlock& block) override;
  void on_text(std::size_t index, const api::AnswerBlock& block, std::string_view text,
               std::span<const api::TokenLogprob> logprobs) override;
  void on_close(std::size_t index, const api::AnswerBlock& block) override;
  void start();

  const api::AnthropicHead head_;
  const bool stream_;
  const std::string request_id_;
  BlockSequence blocks_;
  std::int64_t prompt_tokens_ = 0;
  bool started_ = false;
  std::string* out_ = nullptr;  // during add() and end() of a stream
};

// Counts the prompt of a job that generates nothing.
class TokenCountAnswer final : public Answer {
 public:
  Status add(ChatEvent&, std::string&) override { return ok_status(); }
  void end(const api::Usage& usage, std::string& out) override {
    out += api::render_token_count(usage.prompt_tokens);
  }
};

}  // namespace flotilla::serving
