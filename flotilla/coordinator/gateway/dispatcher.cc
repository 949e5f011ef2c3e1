#include "flotilla/coordinator/gateway/dispatcher.h"

#include <algorithm>

#include "flotilla/base/check.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"
#include "flotilla/protocol/link_error.h"

namespace flotilla::coordinator {
namespace {

Error revocation(const std::string& node) {
  return link_error(protocol::LinkFault::kRevokedNode,
                    "the invitation of node '" + node + "' was revoked");
}

// The numerics ids of its loaded models, each once: nodes that share one can continue each other's
// answers.
std::string numerics_of(const protocol::Register& message) {
  std::string ids;
  for (const protocol::ModelOffer& offer : message.models) {
    if (offer.numerics_id.empty() || ids.find(offer.numerics_id) != std::string::npos) continue;
    ids += (ids.empty() ? "" : ",") + offer.numerics_id;
  }
  return ids;
}

}  // namespace

Dispatcher::Dispatcher(const Clock& clock, Metrics& metrics, DispatchLimits limits,
                       std::function<void()> on_models_changed)
    : clock_(clock),
      metrics_(metrics),
      limits_(limits),
      on_models_changed_(std::move(on_models_changed)),
      registry_(clock),
      router_(registry_, clock, limits.gates),
      warm_(registry_, router_, clock, limits.warm),
      machines_(limits.machines) {}

void Dispatcher::submit(Admission admission) {
  Request fresh;
  fresh.id = admission.id;
  fresh.name = std::move(admission.name);
  fresh.model = admission.prepare->model;
  fresh.stream = admission.stream;
  fresh.prepare = std::move(admission.prepare);
  fresh.sink = std::move(admission.sink);
  fresh.key = admission.key;
  fresh.account = admission.account;
  fresh.is_free = admission.is_free;
  fresh.ask = std::move(admission.ask);
  fresh.admitted = clock_.now();
  Request& request = table_.add_request(std::move(fresh));
  if (registry_.model(request.model) != nullptr) warm_.note_demand(request.model);
  std::vector<JobId> jobs;
  for (std::uint32_t choice = 0; choice < admission.num_choices; ++choice) {
    Job& job = table_.add_job(request, protocol::random_job_id(), choice);
    job.queue_deadline = request.admitted + limits_.queue_timeout;
    jobs.push_back(job.id);
  }
  for (const JobId& id : jobs) {
    Job* job = table_.job(id);
    if (job == nullptr) continue;
    if (draining_) {
      fail_job(*job, {ErrorCode::kUnavailable, "the coordinator is shutting down"});
    } else {
      place(*job);
    }
  }
  erase_if_done(admission.id);
  update_gauges();
}

void Dispatcher::cancel(RequestId id) {
  Request* request = table_.request(id);
  if (request == nullptr) return;
  const std::vector<JobId> jobs = request->jobs;
  for (const JobId& job_id : jobs) {
    Job* job = table_.job(job_id);
    if (job == nullptr) continue;
    if (job->state == JobState::kQueued) {
      leave_queue(*job, request->model);
    } else {
      end_attempt(*job, End::kCancel, "cancelled");
    }
    settle(*job, "cancelled");
  }
  const std::string model = request->model;
  table_.erase_request(id);
  pump(model);
  update_gauges();
}

void Dispatcher::place(Job& job) {
  Request& request = *table_.request(job.request);
  if (job.strikes >= limits_.max_failures * kStrike || job.num_badly >= limits_.max_attempts) {
    fail_job(job, job.last_refusal.value_or(
                      Error{ErrorCode::kUnavailable, "too many nodes failed on this request"}));
    return;
  }
  if (queues_.contains(request.model)) {  // those who wait come first
    enqueue(job);
    pump(request.model);
    return;
  }
  if (!try_place(job)) enqueue(job);
}

RouteWish Dispatcher::wish_for(const Job& job) const {
  RouteWish wish{.excluded = job.excluded};
  if (job.begun()) wish.model_digest = job.model_digest;
  wish.resumed_tokens = static_cast<std::int64_t>(job.ids.size());
  return wish;
}

bool Dispatcher::try_place(Job& job) {
  const Request& request = *table_.request(job.request);
  const std::string& model = request.model;
  RouteWish wish = wish_for(job);
  wish.ask = request.ask.get();
  Route route;
  if (job.begun()) {
    // First where the bits are the same, then where at least the weights are.
    wish.numerics_id = job.numerics_id;
    route = router_.take_slot(model, wish);
    wish.numerics_id = {};
  }
  if (!route) route = router_.take_slot(model, wish);
  if (!route && job.begun() && !job.committed && router_.num_reachable(model, wish) == 0) {
    route = router_.take_slot(model, {.excluded = job.excluded, .ask = wish.ask});
    if (route) begin_anew(job);
  }
  if (!route) return false;
  dispatch(job, route);
  return true;
}

void Dispatcher::dispatch(Job& job, const Route& route) {
  const Request& request = *table_.request(job.request);
  ProviderRecord& provider = *route.provider;
  if (route.shadow != gates::Reason::kNone) metrics_.gate_shadow(to_string(route.shadow));
  if (route.saved_tokens > 0) metrics_.prefix_routed();
  job.route = route;
  job.first_token_after = {};
  job.state = JobState::kPreparing;
  job.attempt = ++job.newest_attempt;
  job.provider = &provider;
  job.attempt_since = job.last_progress = clock_.now();
  job.num_frames = 0;
  job.waiting.reset();
  if (provider.jobs.empty()) provider.pulse.start(job.attempt_since);
  provider.jobs.insert(job.id);
  provider.link->send_prepare(request.prepare, job.choice, job.id, job.attempt);
}

void Dispatcher::enqueue(Job& job) {
  Request& request = *table_.request(job.request);
  const std::string& model = request.model;
  if (registry_.model(model) == nullptr) {
    if (registry_.num_providers() == 0) {
      fail_job(job, {ErrorCode::kUnavailable, "no node is connected"});
    } else {
      fail_job(job, {ErrorCode::kNotFound, "the model '" + model + "' does not exist", "model"});
    }
    return;
  }
  // Nodes may come back, so nobody listing the model is a reason to wait; every one having refused
  // is not.
  RouteWish wish = wish_for(job);
  wish.ask = request.ask.get();
  if (fail_if_hopeless(job, wish)) return;
  const bool none_left = router_.num_candidates(model, wish) == 0;
  wish.excluded = {};
  if (none_left && router_.num_candidates(model, wish) > 0 && job.last_refusal) {
    fail_job(job, *job.last_refusal);
    return;
  }
  const auto queue = queues_.find(model);
  const std::size_t num_waiting = queue == queues_.end() ? 0 : queue->second.size();
  // One that had a node has waited its turn.
  if (job.attempt == 0 && num_waiting >= limits_.max_queued_per_model) {
    Error full{ErrorCode::kResourceExhausted,
               "model '" + model + "': all nodes are busy and " + std::to_string(num_waiting) +
                   " requests wait already (limit " + std::to_string(limits_.max_queued_per_model) +
                   ")"};
    full.retry_after_s = retry_after(model);
    const auto displaced =
        num_waiting == 0 ? std::nullopt : queue->second.to_displace_for(request.key);
    if (!displaced) {
      fail_job(job, full);
      return;
    }
    Job& other = *table_.job(*displaced);
    const RequestId its_request = other.request;
    fail_job(other, full);
    erase_if_done(its_request);
  }
  job.state = JobState::kQueued;
  job.provider = nullptr;
  FairQueue& lanes = queues_[model];
  if (job.attempt > 0) {
    lanes.push_urgent(job.id);
  } else {
    lanes.push(job.id, request.key);
  }
  // Nobody has it loaded: waiting for the next tick would only add to a long wait.
  if (num_waiting == 0 && router_.num_reachable(model, {}) == 0) plan_loads_now();
}

void Dispatcher::leave_queue(const Job& job, const std::string& model) {
  const auto queue = queues_.find(model);
  if (queue == queues_.end()) return;
  queue->second.erase(job.id, table_.request(job.request)->key);
  if (queue->second.empty()) queues_.erase(queue);
}

void Dispatcher::pump(const std::string& model) {
  const auto at = queues_.find(model);
  if (at == queues_.end()) return;
  const auto take = [this](const JobId& id) { return try_place(*table_.job(id)); };
  while (!at->second.empty() && router_.any_free(model) && at->second.offer(take)) {
  }
  if (at->second.empty()) queues_.erase(at);
}

void Dispatcher::pump_all() {
  std::vector<std::string> models;
  for (const auto& [model, queue] : queues_) models.push_back(model);
  for (const std::string& model : models) pump(model);
}

std::size_t Dispatcher::num_queued() const {
  std::size_t n = 0;
  for (const auto& [model, queue] : queues_) n += queue.size();
  return n;
}

std::size_t Dispatcher::num_queued(const std::string& model) const {
  const auto queue = queues_.find(model);
  return queue == queues_.end() ? 0 : queue->second.size();
}

void Dispatcher::node_joined(JoinedNode node, const protocol::Register& message) {
  if (revoked_.contains(node.id)) {  // while its handshake was under way
    node.link->close(revocation(node.node));
    return;
  }
  if (ProviderRecord* old = registry_.find(node.id)) {
    // The node is back before its old connection was found dead.
    const std::shared_ptr<NodeLink> old_link = old->link;
    node_closed(node.id, old_link.get(), "replaced");
    old_link->close({ErrorCode::kUnavailable, "the node connected again"});
  }
  auto record = std::make_unique<ProviderRecord>();
  record->id = node.id;
  record->node = node.node;
  record->software = message.software;
  record->link = std::move(node.link);
  record->hardware = message.hardware;
  record->shows_progress = message.progress_interval_ms > 0;
  record->last_frame = clock_.now();
  ProviderRecord& provider = registry_.add(std::move(record));
  cool(provider, clock_.now());
  set_models(provider, message, /*fresh=*/true);
  protocol::Registered reply;
  reply.provider = provider.id.value;
  reply.heartbeat_interval_ms = static_cast<std::uint32_t>(limits_.heartbeat_interval.count());
  reply.dead_after_ms = static_cast<std::uint32_t>(limits_.dead_after.count());
  provider.link->send(std::move(reply), {}, 0);
  log::info("provider_registered", {{"node", provider.node},
                                    {"provider", provider.id.value},
                                    {"software", provider.software},
                                    {"models", message.models.size()},
                                    {"faults", machines_.num_faults(provider.id)},
                                    {"numerics", numerics_of(message)}});
  metrics_.node_connected();
  ask_about_earlier_jobs(provider, message);
  on_models_changed_();
  pump_all();
  update_gauges();
}

void Dispatcher::set_models(ProviderRecord& provider, const protocol::Register& message,
                            bool fresh) {
  registry_.set_models(provider, message.models);
  for (auto& [model, slot] : provider.slots) {
    if (slot.load.decode_tokens_per_s == 0) machines_.recall_speed(provider.id, slot.load);
    if (!fresh) continue;
    slot.history = machines_.recall_history(provider.id, model);
    registry_.reindex(provider, model);
  }
}

void Dispatcher::node_closed(const ProviderId& id, const NodeLink* from, const std::string& why) {
  ProviderRecord* provider = registry_.find(id);
  if (provider == nullptr || provider->link.get() != from) return;
  const std::vector<JobId> jobs(provider->jobs.begin(), provider->jobs.end());
  log::info(
      "provider_lost",
      {{"node", provider->node}, {"provider", id.value}, {"why", why}, {"jobs", jobs.size()}});
  const bool planned = provider->draining || why == "revoked" || why == "stopping";
  metrics_.node_lost(provider->draining                                ? "drained"
                     : why == "replaced" || why == "silent" || planned ? why
                                                                       : "closed");
  if (!planned) machines_.fault(id, clock_.now());
  for (const auto& [model, slot] : provider->slots)
    machines_.keep_history(id, model, slot.history, clock_.now());
  table_.drop_cancelled_of(id);
  // First out of the index, so that no job is given to it again.
  provider->draining = true;
  registry_.reindex_all(*provider);
  for (const JobId& job_id : jobs) {
    Job* job = table_.job(job_id);
    if (job == nullptr) continue;
    if (job->provider != provider) {  // only its hedge was here
      drop_hedge(*job, End::kDone, "lost");
      continue;
    }
    if (job->hedge) {  // somebody else is asked already
      promote_hedge(*job, End::kDone, "lost");
      continue;
    }
    job->provider = nullptr;
    metrics_.attempt_ended("lost");
  }
  registry_.remove(id);
  warm_.forget(id);
  on_models_changed_();
  for (const JobId& job_id : jobs) {
    Job* job = table_.job(job_id);
    if (job == nullptr || job->provider != nullptr) continue;
    const RequestId request = job->request;
    attempt_failed(*job, End::kDone, "",
                   {ErrorCode::kUnavailable, "the node that served this request was lost"},
                   planned ? Blame::kNobody : Blame::kBadLuck, jobs.size());
    erase_if_done(request);
  }
  update_gauges();
}

void Dispatcher::set_access(const std::unordered_set<ProviderId>& valid,
                            std::unordered_set<ProviderId> revoked) {
  revoked_ = std::move(revoked);
  for (ProviderRecord* provider : registry_.providers()) {
    if (valid.contains(provider->id)) continue;
    const std::shared_ptr<NodeLink> link = provider->link;
    const ProviderId id = provider->id;
    link->close(revocation(provider->node));
    node_closed(id, link.get(), "revoked");
  }
}

void Dispatcher::end_attempt(Job& job, End end, std::string_view how) {
  drop_hedge(job, End::kCancel, "hedged");
  ProviderRecord* provider = std::exchange(job.provider, nullptr);
  if (provider == nullptr) return;
  metrics_.attempt_ended(how);
  prefill_done(job, *provider);
  provider->jobs.erase(job.id);
  const std::string& model = table_.request(job.request)->model;
  if (end == End::kDone) {
    router_.release_slot(*provider, model);
    return;
  }
  table_.add_cancelled(job.id, job.attempt, {provider->id, model, clock_.now()});
  provider->link->send(protocol::Cancel{std::string(how)}, job.id, job.attempt);
}

void Dispatcher::prefill_done(Job& job, ProviderRecord& provider) {
  router_.prefill_done(provider, table_.request(job.request)->model,
                       std::exchange(job.route.prefill_tokens, 0));
}

void Dispatcher::attempt_failed(Job& job, End end, std::string_view how, Error why, Blame blame,
                                std::size_t num_sharing) {
  if (job.provider != nullptr && blame == Blame::kNode) job.excluded.push_back(job.provider->id);
  if (blame != Blame::kNobody) {
    const auto sharing =
        static_cast<std::uint32_t>(std::clamp<std::size_t>(num_sharing, 1, kStrike));
    job.strikes += kStrike / sharing;
    ++job.num_badly;
  }
  const bool was_running = job.state == JobState::kRunning;
  end_attempt(job, end, how);
  const Clock::Instant now = clock_.now();
  if (was_running) {  // its time on the node was no waiting
    job.queue_deadline = std::max(job.queue_deadline, now + limits_.queue_timeout);
    if (!job.lost_at) job.lost_at = now;
  }
  if (!job.begun() && job.committed) {  // text without a single token: nothing to go on from
    fail_job(job, std::move(why));
    return;
  }
  if (!job.begun()) begin_anew(job);
  job.last_refusal = std::move(why);
  place(job);
}

void Dispatcher::finish_job(Job& job, serving::ChatFinish finish) {
  const RequestId id = job.request;
  Request& request = *table_.request(id);
  const std::string_view outcome =
      finish.error ? flotilla::to_string(finish.error->code) : std::string_view("ok");
  serving::ChatEvent event;
  event.choice = static_cast<int>(job.choice);
  event.finish = std::move(finish);
  if (!event.finish->error) commit(job);
  settle(job, outcome);
  deliver(request, std::move(event));
}

void Dispatcher::settle(Job& job, std::string_view outcome) {
  pay(job, outcome);
  metrics_.job_finished(outcome);
  table_.erase_job(job.id);
}

void Dispatcher::fail_job(Job& job, Error error) {
  FLOTILLA_CHECK(job.provider == nullptr, "a job fails after its attempt has ended");
  Request& request = *table_.request(job.request);
  if (job.state == JobState::kQueued) leave_queue(job, request.model);
  log::info("job_failed", {{"request", request.name},
                           {"job", protocol::to_hex(job.id)},
                           {"attempts", job.attempt},
                           {"committed", job.committed},
                           {"code", flotilla::to_string(error.code)}});
  serving::ChatFinish finish;
  finish.reason = serving::ChatFinish::Reason::kError;
  finish.error = std::move(error);
  finish.usage.prompt_tokens = static_cast<std::int64_t>(job.prompt_tokens);
  finish.usage.completion_tokens = static_cast<std::int64_t>(job.ids.size());
  finish_job(job, std::move(finish));
}

void Dispatcher::start_drain() { draining_ = true; }

void Dispatcher::fail_all(const Error& error) {
  std::vector<JobId> jobs;
  for (const auto& [id, job] : table_.jobs()) jobs.push_back(id);
  for (const JobId& id : jobs) {
    Job* job = table_.job(id);
    if (job == nullptr) continue;
    const RequestId request = job->request;
    end_attempt(*job, End::kCancel, "cancelled");
    fail_job(*job, error);
    erase_if_done(request);
  }
  update_gauges();
}

void Dispatcher::drain_nodes(std::chrono::milliseconds deadline) {
  for (ProviderRecord* provider : registry_.providers()) {
    protocol::Drain drain;
    drain.deadline_ms = static_cast<std::uint32_t>(deadline.count());
    drain.reason = "the coordinator is stopping";
    provider->link->send(std::move(drain), {}, 0);
  }
}

void Dispatcher::drop_nodes() {
  for (ProviderRecord* provider : registry_.providers()) {
    const std::shared_ptr<NodeLink> link = provider->link;
    node_closed(ProviderId(provider->id), link.get(), "stopping");
  }
}

void Dispatcher::update_gauges() {
  metrics_.set_jobs(table_.num_jobs(), num_queued());
  metrics_.set_nodes(registry_.num_providers());
}

}  // namespace flotilla::coordinator
