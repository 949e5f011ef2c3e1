// Which node a job goes to, and how it waits for one.
#include "flotilla/coordinator/gateway/dispatcher.h"

namespace flotilla::coordinator {

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

}  // namespace flotilla::coordinator
