// A node of the fleet: its models, its link, the jobs that run on it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "flotilla/base/clock.h"
#include "flotilla/base/error.h"
#include "flotilla/engine/memory_budget.h"
#include "flotilla/net/io_runtime.h"
#include "flotilla/provider/coordinator_link.h"
#include "flotilla/provider/job_runner.h"
#include "flotilla/provider/model_manager.h"

namespace flotilla::provider {

struct AgentOptions {
  LinkOptions link;
  JobOptions jobs = {};
  std::string software = {};
  std::uint32_t num_threads = 0;  // of the engines, for the record; 0: one per core
  int prepare_threads = 2;
  std::size_t max_preparing = 256;
  std::shared_ptr<const engine::MemoryBudget> memory = {};  // of the models; for heartbeats
  std::string accelerator = {};  // its name, when that memory is a card's
  // The coordinator will not have this node (uninvited, revoked, wrong key, ...) and it never got
  // through before. On an I/O thread; the agent goes on trying until it is stopped.
  std::function<void(const Error&)> on_rejected = {};
  // The coordinator took this node; each time the link comes up. On an I/O thread.
  std::function<void()> on_registered = {};
};

// Thread-safe. Must not be destroyed on an I/O thread, and `io` must be running then.
class Agent {
 public:
  // All three must outlive it.
  Agent(net::IoRuntime& io, ModelManager& models, const Clock& clock, AgentOptions options);
  // Ends running jobs and closes the link.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  void start();
  // No new jobs; `done(true)` when the running ones have ended, `done(false)` at the deadline. On
  // an I/O thread, once.
  void drain(std::chrono::milliseconds deadline, std::function<void(bool all_ended)> done);
  bool connected() const;
  std::size_t num_jobs() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace flotilla::provider
