// Gathers the events of a request that is not streamed.
#pragma once

#include <string>
#include <vector>

#include "flotilla/api/chat_response.h"
#include "flotilla/serving/call_filter.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::serving {

class AnswerCollector {
 public:
  AnswerCollector(api::ResponseHead head, int num_choices, bool parallel_calls);

  // As StreamRenderer::append.
  Status add(ChatEvent& event);
  // The body, after every choice has finished.
  std::string render(const api::Usage& usage) const;

 private:
  api::ResponseHead head_;
  std::vector<api::ChoiceOutput> choices_;
  std::vector<CallFilter> filters_;
};

}  // namespace flotilla::serving
