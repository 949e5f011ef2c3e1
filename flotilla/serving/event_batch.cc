#include "flotilla/serving/event_batch.h"

#include "flotilla/base/check.h"
#include "flotilla/serving/chat_session.h"

namespace flotilla::serving {
namespace {
thread_local EventBatch* current = nullptr;
}

EventBatch::EventBatch() {
  FLOTILLA_CHECK(current == nullptr, "batches of events must not be nested");
  current = this;
}

EventBatch::~EventBatch() {
  current = nullptr;
  for (const auto& session : sessions_) session->wake();
}

bool EventBatch::take(const std::shared_ptr<ChatSession>& session) {
  if (current == nullptr) return false;
  current->sessions_.push_back(session);
  return true;
}

}  // namespace flotilla::serving
