// Turns the events of one request into the frames of its stream.
#pragma once

#include <string>
#include <vector>

#include "flotilla/api/chat_response.h"
#include "flotilla/serving/call_filter.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::serving {

class StreamRenderer {
 public:
  StreamRenderer(api::ResponseHead head, int num_choices, bool parallel_calls);

  // Appends the frames of one event whose choice is in range and has not finished. Appends nothing
  // for an event that shows nothing: its ids and logprobs ride on the choice's next frame.
  // `event.finish` must not carry an error.
  Status append(ChatEvent& event, std::string& out);
  // After every choice has finished.
  void append_end(const api::Usage& usage, std::string& out) const;

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
