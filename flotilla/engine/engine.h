// The batching engine of one model: EngineCore on a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "flotilla/engine/engine_core.h"
#include "flotilla/engine/engine_inbox.h"

namespace flotilla::engine {

// After a failed step the engine goes on with the other requests; from the third failure in a row
// it waits between steps, longer each time, and refuses new requests meanwhile (B68).
struct FailurePolicy {
  int tolerated = 2;
  std::chrono::milliseconds first_pause{100};
  std::chrono::milliseconds longest_pause{5000};
};

// Thread-safe. Drain commands, schedule, run, sample, emit; blocked when there is nothing to do.
class Engine {
 public:
  // `layout` must outlive the engine.
  Engine(const EngineOptions& options, const state::StateLayout& layout,
         std::unique_ptr<StepRunner> runner, std::shared_ptr<const OutputFactory> outputs,
         const FailurePolicy& policy = {});
  // Ends all requests with kUnavailable and joins the thread.
  ~Engine();

  Result<RequestId> submit(std::shared_ptr<const PreparedJob> job, EventSink sink);
  void cancel(RequestId id) { inbox_.cancel(id); }
  void resume_output(RequestId id) { inbox_.resume(id); }
  EngineStats stats() const;
  // False while the engine pauses after repeated failures. When the pause is over, one more try is
  // made. False for good when the engine's thread has failed.
  bool healthy() const;

 private:
  struct Health {
    int failures = 0;  // steps in a row
    std::chrono::steady_clock::time_point retry_at{};
    bool dead = false;
  };
  void run_loop();
  void serve();
  void take_commands(InboxContent content);
  EngineCore::StepOutcome timed_step();
  void refuse(Submission& submission, const Error& error);
  void note_failure();
  void publish_stats();

  const FailurePolicy policy_;
  const std::function<void()> on_device_lost_;
  EngineInbox inbox_;
  grammar::MaskWorker masks_;
  EngineCore core_;  // of the thread alone
  mutable std::mutex mutex_;
  Health health_;                                                    // guarded by mutex_
  EngineStats stats_;                                                // guarded by mutex_
  std::optional<std::chrono::steady_clock::time_point> step_began_;  // guarded by mutex_
  std::chrono::milliseconds longest_step_{0};                        // guarded by mutex_
  bool stopping_ = false;                                            // of the thread alone
  std::vector<Submission> arriving_;  // of the thread alone; taken, not yet accepted
  std::thread thread_;
};

}  // namespace flotilla::engine
