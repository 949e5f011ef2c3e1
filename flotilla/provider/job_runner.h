// The jobs of a node: Prepare, Lease or Refuse, Start, Tokens, Finish, Cancel. Knows engines, not
// the connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/net/io_runtime.h"
#include "flotilla/protocol/messages.h"
#include "flotilla/provider/engine_tap.h"
#include "flotilla/provider/model_manager.h"
#include "flotilla/provider/output_trim.h"
#include "flotilla/provider/recent_ends.h"
#include "flotilla/provider/speed.h"
#include "flotilla/provider/worker_pool.h"

namespace flotilla::provider {

struct JobOptions {
  std::chrono::milliseconds lease_time{10'000};
  // Jobs of one model beyond those that run at once; more are refused as busy.
  std::uint32_t max_waiting = 64;
};

// One try of one job: what a frame's header names.
struct AttemptKey {
  JobId job;
  std::uint32_t attempt = 0;
  auto operator<=>(const AttemptKey&) const = default;
};

// Every member on `strand`. Held by shared_ptr: work on other threads finds it through weak
// pointers.
class JobRunner : public std::enable_shared_from_this<JobRunner> {
 public:
  using Send = std::function<void(protocol::ProviderMessage, const AttemptKey&)>;
  // `models`, `workers` and `clock` must outlive it. `on_load_changed` runs when jobs begin or end.
  JobRunner(const net::Strand& strand, ModelManager& models, WorkerPool& workers,
            const Clock& clock, JobOptions options, Send send,
            std::function<void()> on_load_changed);

  void on_prepare(const AttemptKey& key, protocol::Prepare prepare);
  void on_start(const AttemptKey& key, protocol::Start start);
  void on_cancel(const AttemptKey& key);
  void on_flow(const AttemptKey& key, bool paused);
  void on_recall(const protocol::Recall& recall);

  // While set, Prepare is refused.
  void set_draining(bool draining) { draining_ = draining; }
  // Pauses every job while the connection cannot take more.
  void set_link_full(bool full);
  // Ends everything without a frame: the connection is gone.
  void drop_all();
  std::size_t num_jobs() const { return jobs_.size(); }
  std::vector<protocol::SlotLoad> loads() const;
  // Models whose jobs will not go on: their engine is in a step that does not end.
  std::vector<std::string> stuck_models() const;

 private:
  enum class State { kPreparing, kLeased, kRunning };
  struct Job {
    State state = State::kPreparing;
    std::uint64_t serial = 0;  // tells a late result from that of a successor
    std::string model;
    std::shared_ptr<engine::TextEngine> engine;
    std::shared_ptr<const engine::PreparedJob> prepared;
    Clock::Instant lease_ends;
    std::shared_ptr<EngineTap> tap;
    std::optional<OutputTrim> trim;
    bool any_calls = false;
    std::uint64_t num_ids = 0;  // sent
    std::uint64_t num_resumed = 0;
    std::uint32_t num_cancels = 0;
    std::int64_t prompt_tokens = 0;
    Clock::Instant started;
    Clock::Instant last_token;
  };
  using Prepared = Result<std::shared_ptr<const engine::PreparedJob>>;

  void refuse(const AttemptKey& key, protocol::RefuseReason reason, const Error& error,
              std::uint32_t retry_after_ms = 0);
  void on_prepared(const AttemptKey& key, std::uint64_t serial, Prepared prepared);
  void on_token_event(const AttemptKey& key, std::uint64_t serial, engine::TokenEvent event);
  void finish(const AttemptKey& key, Job& job, const engine::Finish& outcome);
  void note_end(const AttemptKey& key, const Job& job, const engine::Finish* outcome);
  void forget(const AttemptKey& key);
  void remember_ended(const AttemptKey& key);
  void arm_lease_timer();
  void end_leases();
  std::uint32_t num_of_model(std::string_view model) const;
  std::uint32_t expected_wait_ms(const engine::TextEngine& engine, const std::string& model) const;

  const net::Strand strand_;
  ModelManager& models_;
  WorkerPool& workers_;
  const Clock& clock_;
  const JobOptions options_;
  const Send send_;
  const std::function<void()> on_load_changed_;
  net::Timer lease_timer_;

  std::map<AttemptKey, Job> jobs_;
  // Attempts that have ended or were cancelled before they came; the oldest are forgotten.
  std::map<AttemptKey, bool> ended_;
  std::deque<AttemptKey> ended_order_;
  std::map<std::string, Speed, std::less<>> speeds_;  // by model; outlives connections
  RecentEnds recent_;                                 // outlives connections
  std::uint64_t next_serial_ = 1;
  bool draining_ = false;
  bool link_full_ = false;
};

}  // namespace flotilla::provider
