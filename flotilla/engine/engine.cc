#include "flotilla/engine/engine.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "flotilla/backend/device_error.h"
#include "flotilla/log/log.h"

namespace flotilla::engine {

using std::chrono::steady_clock;

Engine::Engine(const EngineOptions& options, const state::StateLayout& layout,
               std::unique_ptr<StepRunner> runner, std::shared_ptr<const OutputFactory> outputs,
               const FailurePolicy& policy)
    : policy_(policy),
      on_device_lost_(options.on_device_lost),
      inbox_(static_cast<std::size_t>(options.scheduler.max_sequences + options.max_waiting),
             options.first_id),
      masks_([this] { inbox_.mask_done(); }),
      core_(options, layout, std::move(runner), std::move(outputs),
            [this](auto output) { masks_.post(std::move(output)); }) {
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
                 "the engine does not take requests after repeated failures"};
  }
  return inbox_.submit(std::move(job), std::move(sink));
}

bool Engine::healthy() const {
  std::lock_guard lock(mutex_);
  if (health_.dead) return false;
  return health_.failures <= policy_.tolerated || steady_clock::now() >= health_.retry_at;
}

EngineStats Engine::stats() const {
  EngineStats stats;
  {
    std::lock_guard lock(mutex_);
    stats = stats_;
    if (step_began_) {
      stats.current_step =
          std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - *step_began_);
    }
  }
  stats.num_waiting += static_cast<std::uint32_t>(inbox_.num_submitted());
  return stats;
}

// The last catch: whatever could not be pinned on a request or a step. Health goes red for good,
// everybody is told, and the process may go on serving other models.
void Engine::run_loop() {
  std::string what = "an unknown exception";
  bool lost = false;
  try {
    serve();
    return;
  } catch (const backend::DeviceError& error) {
    what = error.what();
    lost = error.lost();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  log::error("engine_died", {{"what", what}});
  {
    std::lock_guard lock(mutex_);
    health_.dead = true;
  }
  inbox_.stop();
  const Error error{ErrorCode::kInternal, "the engine of this model has failed"};
  core_.end_all(error);
  const std::vector<RequestId> told = core_.take_finished();
  for (Submission& submission : inbox_.take(false).submissions) {
    arriving_.push_back(std::move(submission));
  }
  for (Submission& submission : arriving_) {
    if (std::find(told.begin(), told.end(), submission.id) != told.end()) continue;
    refuse(submission, error);
  }
  publish_stats();
  if (lost && on_device_lost_) on_device_lost_();
}

void Engine::refuse(Submission& submission, const Error& error) {
  TokenEvent event;
  event.request = submission.id;
  event.finish = Finish{.reason = FinishReason::kError, .error = error};
  try {
    submission.sink(std::move(event));
  } catch (const std::exception& gone) {
    log::error("event_sink_failed", {{"request", submission.id.value}, {"what", gone.what()}});
  }
  inbox_.retire({submission.id});
}

void Engine::serve() {
  bool idle = true;
  while (true) {
    idle = idle || !core_.has_work();
    take_commands(inbox_.take(idle, idle ? core_.next_deadline() : std::nullopt));
    if (stopping_) break;
    const EngineCore::StepOutcome outcome = timed_step();
    idle = outcome == EngineCore::StepOutcome::kIdle;
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

EngineCore::StepOutcome Engine::timed_step() {
  const auto began = steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    step_began_ = began;
  }
  const EngineCore::StepOutcome outcome = core_.step();
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - began);
  std::lock_guard lock(mutex_);
  step_began_.reset();
  longest_step_ = std::max(longest_step_, took);
  return outcome;
}

void Engine::take_commands(InboxContent content) {
  arriving_ = std::move(content.submissions);
  while (!arriving_.empty()) {
    const Submission& next = arriving_.front();
    core_.accept(next.id, next.job, next.sink);
    arriving_.erase(arriving_.begin());
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
    InboxContent content = inbox_.take(true, until);
    // Sent before health turned red, such as by somebody who was just told of the failure.
    const Error paused{ErrorCode::kUnavailable,
                       "the engine does not take requests after repeated failures"};
    for (Submission& late : std::exchange(content.submissions, {})) refuse(late, paused);
    take_commands(std::move(content));
    publish_stats();
  }
}

void Engine::publish_stats() {
  EngineStats stats = core_.stats();
  std::lock_guard lock(mutex_);
  stats.longest_step = longest_step_;
  stats_ = stats;
}

}  // namespace flotilla::engine
