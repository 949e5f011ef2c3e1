#include "flotilla/coordinator/gateway/dispatcher.h"

#include <algorithm>

#include "flotilla/base/check.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {

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
  fresh.handed.resize(admission.num_choices);
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
  release_kept(*request, Ending::kLeft);
  const std::string model = request->model;
  table_.erase_request(id);
  pump(model);
  update_gauges();
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

void Dispatcher::update_gauges() {
  metrics_.set_jobs(table_.num_jobs(), num_queued());
  metrics_.set_nodes(registry_.num_providers());
}

}  // namespace flotilla::coordinator
