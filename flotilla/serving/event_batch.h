// Holds back the wake-ups of sessions while a burst of events is dealt out, so that each session
// handles all of its events at once: one write to the client for a burst, not one per token.
#pragma once

#include <memory>
#include <vector>

namespace flotilla::serving {

class ChatSession;

// On one thread, for the length of a scope; not nested. Sessions are woken when it ends.
class EventBatch {
 public:
  EventBatch();
  ~EventBatch();
  EventBatch(const EventBatch&) = delete;
  EventBatch& operator=(const EventBatch&) = delete;

  // True when a batch of this thread has taken the session and will wake it.
  static bool take(const std::shared_ptr<ChatSession>& session);

 private:
  std::vector<std::shared_ptr<ChatSession>> sessions_;
};

}  // namespace flotilla::serving
