// Helpers for tests of engines: a sink that collects, and jobs.
#pragma once

#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

// Sanitizers make kernels ten times slower: what only repeats is then done less often.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

inline ChatJob chat_job(std::string_view user) {
  ChatJob job;
  job.messages =
      boost::json::array{boost::json::object{{"role", "user"}, {"content", std::string(user)}}};
  return job;
}

// Collects the events of one request; thread-safe. Keep it in a shared_ptr that the sink copies.
class EventLog {
 public:
  static std::shared_ptr<EventLog> make() { return std::make_shared<EventLog>(); }

  // The sink asks for a pause after every `pause_after` events; 0: never.
  static EventSink sink(const std::shared_ptr<EventLog>& log, int pause_after = 0) {
    return [log, pause_after](TokenEvent event) {
      std::lock_guard lock(log->mutex_);
      log->events_.push_back(std::move(event));
      log->changed_.notify_all();
      return pause_after == 0 || log->events_.size() % static_cast<std::size_t>(pause_after) != 0;
    };
  }

  // The finish event; nullopt after a minute without one.
  std::optional<Finish> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [this] { return finished_locked(); });
    return finished_locked() ? events_.back().finish : std::nullopt;
  }
  // True once `count` events have come (or the end), within a minute.
  bool wait_events(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [this, count] {
      return events_.size() >= count || finished_locked();
    });
  }
  std::vector<TokenEvent> events() const {
    std::lock_guard lock(mutex_);
    return events_;
  }
  std::string text(chat::Channel channel = chat::Channel::kContent) const {
    std::string out;
    for (const TokenEvent& event : events()) {
      for (const chat::OutputDelta& delta : event.deltas) {
        if (delta.channel == channel) out += delta.text;
      }
    }
    return out;
  }
  std::vector<TokenId> ids() const {
    std::vector<TokenId> out;
    for (const TokenEvent& event : events()) {
      out.insert(out.end(), event.ids.begin(), event.ids.end());
    }
    return out;
  }

 private:
  bool finished_locked() const { return !events_.empty() && events_.back().finish.has_value(); }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenEvent> events_;  // guarded by mutex_
};

// Prepares and submits; the log of what follows. A refusal is logged as a finish with its error.
inline std::shared_ptr<EventLog> start(TextEngine& engine, ChatJob job, int pause_after = 0,
                                       RequestId* id = nullptr) {
  auto log = EventLog::make();
  EventSink sink = EventLog::sink(log, pause_after);
  auto prepared = engine.prepare(std::move(job));
  auto refused = [&sink](const Error& error) {
    TokenEvent event;
    event.finish = Finish{.reason = FinishReason::kError, .error = error};
    sink(std::move(event));
  };
  if (!prepared.ok()) {
    refused(prepared.error());
    return log;
  }
  auto submitted = engine.submit(*prepared, sink);
  if (!submitted.ok()) {
    refused(submitted.error());
  } else if (id != nullptr) {
    *id = *submitted;
  }
  return log;
}

// The engine's numbers once nothing runs; the last events are out a moment before its books. As
// they are after ten seconds if it does not come to rest. `engine` is a TextEngine or an Engine.
template <class E>
EngineStats settled_stats(const E& engine) {
  EngineStats stats;
  for (int i = 0; i < 10'000; ++i) {
    stats = engine.stats();
    if (stats.num_running == 0 && stats.num_waiting == 0 && stats.kv_bytes_used == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return stats;
}

}  // namespace flotilla::engine
