// Answers of POST /v1/completions.
#pragma once

#include <string>
#include <vector>

#include "flotilla/api/completion_response.h"
#include "flotilla/serving/answer.h"

namespace flotilla::serving {

struct CompletionPlan {
  bool stream = false;
  int per_prompt = 1;                    // choices generated
  int kept_per_prompt = 1;               // of them, those whose tokens were likeliest on average
  std::vector<std::string> echoes = {};  // begin the answers to each prompt; or none
  std::size_t num_prompts = 1;
};

class CompletionAnswer final : public Answer {
 public:
  CompletionAnswer(api::ResponseHead head, CompletionPlan plan);

  // Choices are numbered prompt by prompt.
  Status add(ChatEvent& event, std::string& out) override;
  void end(const api::Usage& usage, std::string& out) override;

 private:
  struct Choice {
    std::string text;                         // all of it, or of a stream nothing
    std::vector<api::TokenLogprob> logprobs;  // of a stream: not sent yet
    std::vector<std::int32_t> token_ids;      // the same
    std::int64_t num_characters = 0;          // before the first of `logprobs`
    api::FinishReason finish = api::FinishReason::kStop;
    bool echoed = false;
  };

  std::string_view echo_of(std::size_t index) const;
  void append_piece(Choice& choice, int index, std::string_view text,
                    std::optional<api::FinishReason> finish, std::string& out);
  std::vector<std::size_t> kept() const;

  const api::ResponseHead head_;
  const CompletionPlan plan_;
  std::vector<Choice> choices_;
};

}  // namespace flotilla::serving
