// A chat completion that is not streamed.
#pragma once

#include <string>
#include <vector>

#include "flotilla/api/chat_response.h"
#include "flotilla/serving/answer.h"
#include "flotilla/serving/call_filter.h"

namespace flotilla::serving {

class ChatWholeAnswer final : public Answer {
 public:
  ChatWholeAnswer(api::ResponseHead head, int num_choices, bool parallel_calls);

  Status add(ChatEvent& event, std::string& out) override;
  void end(const api::Usage& usage, std::string& out) override;

 private:
  api::ResponseHead head_;
  std::vector<api::ChoiceOutput> choices_;
  std::vector<CallFilter> filters_;
};

}  // namespace flotilla::serving
