#include "flotilla/serving/session_set.h"

namespace flotilla::serving {

bool SessionSet::insert(std::shared_ptr<ChatSession> session) {
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  sessions_.insert(std::move(session));
  return true;
}

void SessionSet::erase(const std::shared_ptr<ChatSession>& session) {
  std::lock_guard lock(mutex_);
  sessions_.erase(session);
  if (sessions_.empty()) emptied_.notify_all();
}

std::size_t SessionSet::size() const {
  std::lock_guard lock(mutex_);
  return sessions_.size();
}

std::vector<std::shared_ptr<ChatSession>> SessionSet::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  return {sessions_.begin(), sessions_.end()};
}

bool SessionSet::wait_until_empty(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_for(lock, timeout, [this] { return sessions_.empty(); });
}

}  // namespace flotilla::serving
