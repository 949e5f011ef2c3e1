#include "flotilla/engine/engine.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "flotilla/log/log.h"

namespace flotilla::engine {

using std::chrono::steady_clock;

Engine::Engine(const EngineOptions& options, const state::StateLayout& layout,
               std::unique_ptr<StepRunner> runner, std::shared_ptr<const OutputFactory> outputs,
               const FailurePolicy& policy)
    : policy_(policy),
      core_(options, layout, std::move(runner), std::move(outputs)),
      inbox_(static_cast<std::size_t>(options.scheduler.max_sequences + options.max_waiting)) {
  stats_ = core_.stats();
  thread_ = std::thread([this] { run_loop(); });
}

Engine::~Engine() {
  inbox_.stop();
  thread_.join();
}

Result<RequestId> Engine::submit(std::shared_ptr<const PreparedJob> job, EventSink sink) {
  if (!healthy()) {
    return Error{ErrorCode::kUnavailable,
                 "the engine pauses after repeated failures of its device"};
  }
  return inbox_.submit(std::move(job), std::move(sink));
}

bool Engine::healthy() const {
  std::lock_guard lock(mutex_);
  return health_.failures <= policy_.tolerated || steady_clock::now() >= health_.retry_at;
}

EngineStats Engine::stats() const {
  EngineStats stats;
  {
    std::lock_guard lock(mutex_);
    stats = stats_;
  }
  stats.num_waiting += static_cast<std::uint32_t>(inbox_.num_submitted());
  return stats;
}

void Engine::run_loop() {
  while (true) {
    take_commands(inbox_.take(!core_.has_work()));
    if (stopping_) break;
    const EngineCore::StepOutcome outcome = core_.step();
    publish_stats();
    inbox_.retire(core_.take_finished());
    if (outcome == EngineCore::StepOutcome::kFailed) {
      note_failure();
      if (stopping_) break;
    } else if (outcome == EngineCore::StepOutcome::kDone) {
      std::lock_guard lock(mutex_);
      health_.failures = 0;
    } else {
      core_.check_integrity();  // nothing runs: the moment to look
    }
  }
  core_.end_all({ErrorCode::kUnavailable, "the engine is stopping"});
  publish_stats();
  inbox_.retire(core_.take_finished());
}

void Engine::take_commands(InboxContent content) {
  for (Submission& submission : content.submissions) {
    core_.accept(submission.id, std::move(submission.job), std::move(submission.sink));
  }
  for (const RequestId id : content.resumes) core_.resume_output(id);
  for (const RequestId id : content.cancels) core_.cancel(id);
  stopping_ = stopping_ || content.stop;
  inbox_.retire(core_.take_finished());
}

// Requests may still be cancelled during the pause.
void Engine::note_failure() {
  steady_clock::time_point until;
  int failures = 0;
  {
    std::lock_guard lock(mutex_);
    failures = ++health_.failures;
    if (failures > policy_.tolerated) {
      const int doublings = std::min(failures - policy_.tolerated - 1, 16);
      const auto pause = std::min(policy_.longest_pause, policy_.first_pause * (1 << doublings));
      health_.retry_at = steady_clock::now() + pause;
    }
    until = health_.retry_at;
  }
  log::error("engine_step_failed",
             {{"failures_in_a_row", failures}, {"what", core_.last_failure()}});
  if (failures <= policy_.tolerated) return;
  while (!stopping_ && steady_clock::now() < until) {
    take_commands(inbox_.take(true, until));
    publish_stats();
  }
}

void Engine::publish_stats() {
  const EngineStats stats = core_.stats();
  std::lock_guard lock(mutex_);
  stats_ = stats;
}

}  // namespace flotilla::engine
