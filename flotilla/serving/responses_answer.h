// Answers of POST /v1/responses.
#pragma once

#include "flotilla/api/responses_response.h"
#include "flotilla/serving/answer.h"
#include "flotilla/serving/block_sequence.h"

namespace flotilla::serving {

class ResponsesAnswer final : public Answer, private BlockSequence::Listener {
 public:
  ResponsesAnswer(api::ResponsesHead head, bool stream, bool parallel_calls);

  Status add(ChatEvent& event, std::string& out) override;
  void end(const api::Usage& usage, std::string& out) override;
  void append_error(const Error& error, std::string& out) override;

 private:
  void on_open(std::size_t index, api::AnswerBlock& block) override;
  void on_text(std::size_t index, const api::AnswerBlock& block, std::string_view text,
               std::span<const api::TokenLogprob> logprobs) override;
  void on_close(std::size_t index, const api::AnswerBlock& block) override;
  void start(std::string& out);

  api::ResponsesWriter writer_;
  const bool stream_;
  BlockSequence blocks_;
  bool started_ = false;
  std::string* out_ = nullptr;  // during add() of a stream
};

}  // namespace flotilla::serving
