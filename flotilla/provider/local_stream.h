// One running request of LocalBackend: n choices on one engine.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "flotilla/engine/text_engine.h"
#include "flotilla/provider/chat_job.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::provider {

// Thread-safe. Kept alive by the engine's sinks until the last choice has finished.
class LocalRun : public std::enable_shared_from_this<LocalRun> {
 public:
  using OnEvent = std::function<bool(serving::ChatEvent)>;
  LocalRun(api::ChatRequest request, std::string tenant, OnEvent on_event);

  // On a worker thread: renders, tokenises, submits every choice.
  void prepare_and_submit(std::shared_ptr<engine::TextEngine> engine);
  // Ends all choices that have not finished with `error`.
  void fail(const Error& error);
  void cancel();
  void resume();

 private:
  struct Choice {
    explicit Choice(const JobId& job) : call_ids(job) {}
    CallIds call_ids;
    RequestId request;
    bool submitted = false;
    bool any_calls = false;
    bool finished = false;
    bool paused = false;  // the sink said false and nobody has resumed since
  };

  bool on_token_event(std::size_t index, engine::TokenEvent event);
  void finish_counted(const engine::PreparedJob& prepared);
  void fail_locked(std::size_t index, const Error& error);

  api::ChatRequest request_;
  const std::string tenant_;
  // Held while on_event_ runs: one event at a time, and none after cancel() has returned. on_event_
  // must not call back.
  std::mutex mutex_;
  OnEvent on_event_;                            // guarded by mutex_; empty once cancelled
  std::vector<Choice> choices_;                 // guarded by mutex_
  std::shared_ptr<engine::TextEngine> engine_;  // guarded by mutex_
  std::int64_t prompt_tokens_ = 0;              // guarded by mutex_
};

class LocalStream final : public serving::ChatStream {
 public:
  explicit LocalStream(std::shared_ptr<LocalRun> run) : run_(std::move(run)) {}
  ~LocalStream() override { run_->cancel(); }
  void cancel() override { run_->cancel(); }
  void resume() override { run_->resume(); }

 private:
  const std::shared_ptr<LocalRun> run_;
};

}  // namespace flotilla::provider
