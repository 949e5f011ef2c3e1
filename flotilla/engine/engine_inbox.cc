#include "flotilla/engine/engine_inbox.h"

#include <string>
#include <utility>

namespace flotilla::engine {

Result<RequestId> EngineInbox::submit(std::shared_ptr<const PreparedJob> job, EventSink sink) {
  RequestId id;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return Error{ErrorCode::kUnavailable, "the engine is stopping"};
    if (live_.size() >= max_live_) {
      return Error{ErrorCode::kResourceExhausted,
                   "the engine's queue is full (" + std::to_string(max_live_) + " requests)"};
    }
    id.value = ++last_id_;
    live_.insert(id);
    content_.submissions.push_back({id, std::move(job), std::move(sink)});
  }
  wake_.notify_one();
  return id;
}

void EngineInbox::cancel(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    if (!live_.contains(id)) return;
    content_.cancels.insert(id);
  }
  wake_.notify_one();
}

void EngineInbox::resume(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    if (!live_.contains(id)) return;
    content_.resumes.insert(id);
  }
  wake_.notify_one();
}

void EngineInbox::mask_done() {
  {
    std::lock_guard lock(mutex_);
    content_.masks = true;
  }
  wake_.notify_one();
}

void EngineInbox::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    content_.stop = true;
  }
  wake_.notify_one();
}

InboxContent EngineInbox::take(bool wait,
                               std::optional<std::chrono::steady_clock::time_point> until) {
  std::unique_lock lock(mutex_);
  if (wait && until) {
    wake_.wait_until(lock, *until, [this] { return !content_.empty(); });
  } else if (wait) {
    wake_.wait(lock, [this] { return !content_.empty(); });
  }
  return std::exchange(content_, {});
}

void EngineInbox::retire(const std::vector<RequestId>& ids) {
  if (ids.empty()) return;
  std::lock_guard lock(mutex_);
  for (const RequestId id : ids) live_.erase(id);
}

std::size_t EngineInbox::num_live() const {
  std::lock_guard lock(mutex_);
  return live_.size();
}

std::size_t EngineInbox::num_submitted() const {
  std::lock_guard lock(mutex_);
  return content_.submissions.size();
}

}  // namespace flotilla::engine
