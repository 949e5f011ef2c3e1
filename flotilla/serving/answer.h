// How the events of one request become its answer, in the words of the API that the client speaks.
#pragma once

#include <string>
#include <string_view>

#include "flotilla/api/chat_response.h"
#include "flotilla/base/error.h"
#include "flotilla/base/result.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::serving {

// One request, one thread. A stream's frames are appended to `out` as they come; an answer that is
// not streamed is appended whole by end().
class Answer {
 public:
  virtual ~Answer() = default;
  // Takes one event whose choice is in range and has not finished; its finish must not carry an
  // error. An event that shows nothing appends nothing: ids and logprobs ride on the next frame.
  virtual Status add(ChatEvent& event, std::string& out) = 0;
  // After every choice has finished.
  virtual void end(const api::Usage& usage, std::string& out) = 0;
  // A failure after the status was sent. Nothing follows. Only for streams.
  virtual void append_error(const Error& error, std::string& out) {
    out += api::error_frame(error);
  }
  // What clients of the API skip; it keeps proxies from giving up.
  virtual std::string_view keep_alive_frame() const { return api::kKeepAliveFrame; }
};

}  // namespace flotilla::serving
