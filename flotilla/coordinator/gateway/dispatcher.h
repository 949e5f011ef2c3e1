// Gives every job to a node and its events to the client: prepare, lease, start, relay, replace,
// cancel. Pure logic: no I/O, no threads, time from a Clock. All members are called on the core
// strand.
//
// A job has one attempt at a time (while it is being prepared, perhaps a second in reserve). It
// goes to the node that the router expects to be soonest; a refusal sends it to the next; when all
// are busy it waits its turn, for a bounded time. A node that is lost, falls silent, fails or
// drains is replaced: another one of the same model digest is given the ids so far and continues
// the answer. Only before the commit (see Job) may it begin anew instead; after it one error event
// ends the choice when no node can continue within the time.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/gateway/dispatch_types.h"
#include "flotilla/coordinator/gateway/fair_queue.h"
#include "flotilla/coordinator/gateway/in_flight.h"
#include "flotilla/coordinator/gateway/till.h"
#include "flotilla/coordinator/metrics.h"
#include "flotilla/coordinator/registry/machine_memory.h"
#include "flotilla/coordinator/registry/provider_registry.h"
#include "flotilla/coordinator/routing/router.h"
#include "flotilla/coordinator/routing/warm_pool.h"

namespace flotilla::coordinator {

class Dispatcher {
 public:
  // `clock` and `metrics` must outlive it. `on_models_changed` runs after the list of models may
  // have changed.
  Dispatcher(const Clock& clock, Metrics& metrics, DispatchLimits limits,
             std::function<void()> on_models_changed);

  // Jobs are paid for at `till`, which outlives the last of them. Without one everything is free.
  void set_till(Till* till) { till_ = till; }
  // What a node reports of jobs of an earlier run, and what nodes are asked when they join.
  struct RecallHooks {
    std::function<std::vector<protocol::Recall>(const ProviderId&)> questions;
    std::function<void(const ProviderId&, const protocol::Recalled&)> on_report;
  };
  void set_recall(RecallHooks hooks) { recall_ = std::move(hooks); }

  // Requests. Every job of an admission ends with exactly one event that has `finish`, unless it is
  // cancelled.
  void submit(Admission admission);
  void cancel(RequestId id);
  void resume(RequestId id);
  // The client was handed all of an answer that is not streamed. Without it nothing of it is paid
  // for.
  void taken(RequestId id);

  // Nodes. A node that joins again replaces its old connection. Calls from a link that is not the
  // node's current one are ignored.
  void node_joined(JoinedNode node, const protocol::Register& message);
  void node_message(const ProviderId& id, const NodeLink* from, const JobId& job,
                    std::uint32_t attempt, protocol::ProviderMessage message);
  void node_closed(const ProviderId& id, const NodeLink* from, const std::string& why);
  // Who may be connected: the rest is cut. `revoked` ones are turned away also when they join
  // later, until the next call.
  void set_access(const std::unordered_set<ProviderId>& valid,
                  std::unordered_set<ProviderId> revoked);

  // Has a node load or unload a model now. The outcome shows in its list of models; kNotFound
  // without such a node or model. Jobs that run on a model that goes are finished.
  Status order(WarmOrder::What what, const std::string& node, const std::string& model);

  // Everything that time does. Every 100 ms or so.
  void tick();

  // No new requests; what runs goes on.
  void start_drain();
  // Ends every request with an error.
  void fail_all(const Error& error);
  void drain_nodes(std::chrono::milliseconds deadline);
  // Forgets every node; their links are let go. At the very end.
  void drop_nodes();

  // A model that nodes served before this process began: its requests wait for one to return.
  void know_model(const std::string& name) { registry_.know_model(name); }

  // What models mean from now on.
  void set_catalog(std::shared_ptr<const CatalogView> catalog);

  const DispatchLimits& limits() const { return limits_; }  // any thread
  // Those that are loaded somewhere, and those that a request would have loaded.
  std::vector<serving::ModelEntry> models() const;
  ProviderRegistry& registry() { return registry_; }
  const Router& router() const { return router_; }
  InFlightTable& table() { return table_; }
  std::size_t num_queued() const;
  std::size_t num_queued(const std::string& model) const;

 private:
  // Placing (dispatcher.cc).
  void place(Job& job);
  bool try_place(Job& job);
  RouteWish wish_for(const Job& job) const;
  void dispatch(Job& job, const Route& route);
  bool fail_if_hopeless(Job& job, const RouteWish& wish);
  // Seconds after which a client should try again; what nodes of the model say, and the queue.
  std::int64_t retry_after(const std::string& model);
  std::string busy_reasons(const std::string& model) const;
  void enqueue(Job& job);
  void pump(const std::string& model);
  void pump_all();
  void leave_queue(const Job& job, const std::string& model);

  // Frames of the current attempt (dispatcher_frames.cc).
  void on_lease(Job& job, const protocol::Lease& lease);
  void on_refuse(Job& job, const protocol::Refuse& refuse);
  bool exclude_smaller(Job& job);
  void on_hedge_refused(Job& job, const protocol::Refuse& refuse);
  void on_tokens(Job& job, protocol::Tokens tokens);
  void end_at_limit(Job& job);
  void on_finish(Job& job, const protocol::Finish& finish);
  void learn(const Job& job, const protocol::Finish& finish);
  void on_cancel_ack(const JobId& job, std::uint32_t attempt);
  void on_heartbeat(ProviderRecord& provider, const protocol::Heartbeat& message);
  void on_model_status(ProviderRecord& provider, const protocol::ModelStatus& message);
  Job* current(const ProviderRecord& provider, const JobId& job, std::uint32_t attempt);

  // Ends of attempts and jobs.
  enum class End { kDone, kCancel };  // the node is through with it, or must be told
  void end_attempt(Job& job, End end, std::string_view how);
  void prefill_done(Job& job, ProviderRecord& provider);
  enum class Blame {
    kNobody,   // the node was busy or drains: the attempt does not count
    kBadLuck,  // it counts, but the node may be tried again
    kNode,     // it counts, and the job does not go there again until it has made progress
  };
  // `num_sharing`: jobs that ended with it, each of which may have been the cause.
  void attempt_failed(Job& job, End end, std::string_view how, Error why, Blame blame,
                      std::size_t num_sharing = 1);
  void finish_job(Job& job, serving::ChatFinish finish);
  void fail_job(Job& job, Error error);
  // The one place where a job ends, however it does.
  void settle(Job& job, std::string_view outcome);

  // The second Prepare (dispatcher_hedge.cc).
  static bool is_hedge(const Job& job, const ProviderRecord& provider, std::uint32_t attempt);
  void hedge(Job& job);
  Hedge take_hedge(Job& job);
  void drop_hedge(Job& job, End end, std::string_view how);
  void promote_hedge(Job& job, End end, std::string_view how);
  // Its slot is left alone for as long as the refusal says, or it is out. Whom to blame.
  Blame heed_refusal(ProviderRecord& provider, const std::string& model,
                     const protocol::Refuse& refuse);

  // Continuing elsewhere (dispatcher_recovery.cc).
  void begin_anew(Job& job);
  bool begin_attempt(Job& job, const protocol::Lease& lease);
  void note_progress(Job& job, Clock::Instant now);
  void on_progress(ProviderRecord& provider, const protocol::Progress& message);
  void on_drain(ProviderRecord& provider, const protocol::Drain& message);
  void heard(ProviderRecord& provider, Clock::Instant now);
  void cool(ProviderRecord& provider, Clock::Instant now);
  void check_signs(Clock::Instant now);
  void fall_silent(ProviderRecord& provider);
  enum class Elsewhere { kFreeNow, kListed };
  void move_jobs(ProviderRecord& provider, const std::string* model, Elsewhere elsewhere,
                 std::string_view how);
  void forgive_silence(Clock::Instant now);

  // Money (dispatcher_money.cc).
  bool wait_for_money(Job& job, const protocol::Lease& lease);
  void note_node(Job& job);
  void on_held(const JobId& id, const ReserveOrder& order, Result<Reservation> made);
  void start_leased(Job& job, const protocol::Lease& lease);
  void note_served(Job& job, std::uint64_t num_tokens);
  void pay(const Job& job, std::string_view outcome);
  enum class Ending { kWhole, kLeft };  // the client has it all, or left before
  void release_kept(Request& request, Ending ending);
  void mark_delivered(Clock::Instant now);
  void ask_about_earlier_jobs(ProviderRecord& provider, const protocol::Register& message);

  // Loads (dispatcher_loads.cc).
  void plan_loads(Clock::Instant now);
  void plan_loads_now();
  void send_order(const WarmOrder& order, std::string_view why);

  // Events towards the client (dispatcher_events.cc).
  void emit(Job& job, serving::ChatEvent event, bool has_content);
  void commit(Job& job);
  void deliver(Request& request, serving::ChatEvent event);
  static bool hand_over(Request& request, serving::ChatEvent event);
  void set_flow(Request& request, bool paused);
  void overflow(Request& request);
  void erase_if_done(RequestId id);

  void check_jobs(Clock::Instant now);
  bool still_sending(const Job& job);
  void check_nodes(Clock::Instant now);
  void set_models(ProviderRecord& provider, const protocol::Register& message, bool fresh);
  void update_gauges();

  const Clock& clock_;
  Metrics& metrics_;
  const DispatchLimits limits_;
  const std::function<void()> on_models_changed_;
  ProviderRegistry registry_;
  Router router_;
  WarmPool warm_;
  Clock::Instant last_plan_{};
  InFlightTable table_;
  std::unordered_map<std::string, FairQueue> queues_;  // by model, none empty
  std::size_t num_hedges_ = 0;
  MachineMemory machines_;
  Till* till_ = nullptr;
  RecallHooks recall_;
  struct RetryHint {
    Clock::Instant at{};
    std::int64_t seconds = 0;
  };
  std::unordered_map<std::string, RetryHint> retry_hints_;  // by model; good for a moment
  std::unordered_set<ProviderId> revoked_;
  Clock::Instant last_tick_{};
  bool draining_ = false;
};

}  // namespace flotilla::coordinator
