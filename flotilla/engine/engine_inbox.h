// Commands from any thread to the engine's thread. Bounded by the number of live requests: a
// request can be submitted, cancelled and resumed once each before the thread looks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

struct Submission {
  RequestId id;
  std::shared_ptr<const PreparedJob> job;
  EventSink sink;
};

struct InboxContent {
  std::vector<Submission> submissions;
  std::set<RequestId> cancels;
  std::set<RequestId> resumes;
  bool masks = false;  // some were computed
  bool stop = false;
  bool empty() const {
    return submissions.empty() && cancels.empty() && resumes.empty() && !masks && !stop;
  }
};

// Thread-safe.
class EngineInbox {
 public:
  explicit EngineInbox(std::size_t max_live, std::uint64_t first_id = 1)
      : max_live_(max_live), last_id_(first_id - 1) {}

  // kResourceExhausted at max_live requests, kUnavailable after stop().
  Result<RequestId> submit(std::shared_ptr<const PreparedJob> job, EventSink sink);
  // Ignored for requests that are not live.
  void cancel(RequestId id);
  void resume(RequestId id);
  void mask_done();
  void stop();

  // Everything that came. With `wait`, blocks until there is something (or `until`).
  InboxContent take(bool wait, std::optional<std::chrono::steady_clock::time_point> until = {});
  // The requests have had their last event.
  void retire(const std::vector<RequestId>& ids);
  std::size_t num_live() const;
  std::size_t num_submitted() const;  // not taken yet

 private:
  const std::size_t max_live_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  InboxContent content_;      // guarded by mutex_
  std::set<RequestId> live_;  // guarded by mutex_
  std::uint64_t last_id_;     // guarded by mutex_
  bool stopped_ = false;      // guarded by mutex_
};

}  // namespace flotilla::engine
