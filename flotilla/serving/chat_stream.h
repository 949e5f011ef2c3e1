// The stream of a chat completion.
#pragma once

#include <string>
#include <vector>

#include "flotilla/api/chat_response.h"
#include "flotilla/serving/answer.h"
#include "flotilla/serving/call_filter.h"

namespace flotilla::serving {

class ChatStreamAnswer final : public Answer {
 public:
  ChatStreamAnswer(api::ResponseHead head, int num_choices, bool parallel_calls);

  Status add(ChatEvent& event, std::string& out) override;
  void end(const api::Usage& usage, std::string& out) override;

 private:
  struct Choice {
    explicit Choice(bool parallel) : calls(parallel) {}
    CallFilter calls;
    bool role_sent = false;
    int open_call = -1;                       // may still get arguments
    bool call_has_text = false;               // and has got some
    std::vector<api::TokenLogprob> logprobs;  // not yet sent
    std::vector<std::int32_t> token_ids;      // not yet sent
  };

  Status append_delta(Choice& choice, int index, ChatDelta& delta, std::string& out);
  void append_role(Choice& choice, int index, std::string& out) const;
  // A call without arguments has the empty object, so that its pieces always join to JSON.
  void close_call(Choice& choice, int index, std::string& out) const;
  template <class Append>
  void with_extras(Choice& choice, Append append) const;

  api::ResponseHead head_;
  api::ChunkWriter writer_;
  std::vector<Choice> choices_;
};

}  // namespace flotilla::serving
