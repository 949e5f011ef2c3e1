// Keeps the tool calls of one choice well formed on their way to the client.
#pragma once

#include <cstdint>
#include <string_view>

#include "flotilla/base/result.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::serving {

class CallFilter {
 public:
  explicit CallFilter(bool parallel) : parallel_(parallel) {}

  enum class Verdict { kDrop, kStart, kContinue };
  // For a delta of the tool-call channel. kStart: the first piece of a call, which has an id and a
  // name now. kDrop: a further call where the client allowed one only. An error means that the
  // backend broke its contract.
  Result<Verdict> admit(ChatDelta& delta);

  int num_calls() const { return num_calls_; }
  // The last call's arguments are a whole JSON text, or none at all.
  bool last_is_whole() const { return depth_ == 0 && !in_text_; }

 private:
  void follow(std::string_view arguments);

  const bool parallel_;
  int num_calls_ = 0;
  // Where the arguments of the last call have got to.
  std::int64_t depth_ = 0;
  bool in_text_ = false;
  bool escaped_ = false;
};

}  // namespace flotilla::serving
