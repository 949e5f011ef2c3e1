// Events towards the client, and what time does.
#include "flotilla/base/check.h"
#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {
namespace {
// So much in front of a node's socket means that its line, not the node, is slow.
constexpr std::size_t kSlowLineBytes = 64u << 10;

std::size_t size_of(const serving::ChatEvent& event) {
  std::size_t bytes = sizeof event + event.ids.size() * sizeof(std::int32_t);
  for (const serving::ChatDelta& delta : event.deltas) {
    bytes += sizeof delta + delta.text.size() + delta.call_id.size() + delta.call_name.size();
  }
  for (const serving::ChatLogprob& entry : event.logprobs) {
    bytes += sizeof entry * (1 + entry.top.size()) + entry.bytes.size();
  }
  return bytes;
}

}  // namespace

void Dispatcher::emit(Job& job, serving::ChatEvent event, bool has_content) {
  Request& request = *table_.request(job.request);
  if (has_content && !request.seen_content) {
    request.seen_content = true;
    metrics_.first_content(clock_.now() - request.admitted);
  }
  if (!job.committed && !(request.stream && has_content)) {
    job.held_bytes += size_of(event);
    job.held.push_back(std::move(event));
    if (job.held_bytes > limits_.max_held_bytes) {
      end_attempt(job, End::kCancel, "cancelled");
      fail_job(job, {ErrorCode::kResourceExhausted, "the answer exceeds " +
                                                        std::to_string(limits_.max_held_bytes) +
                                                        " bytes; ask for a stream"});
    }
    return;
  }
  commit(job);
  deliver(request, std::move(event));
  if (request.paused && request.pending_bytes > limits_.max_pending_bytes) overflow(request);
}

void Dispatcher::commit(Job& job) {
  if (std::exchange(job.committed, true)) return;
  Request& request = *table_.request(job.request);
  std::deque<serving::ChatEvent> held = std::exchange(job.held, {});
  job.held_bytes = 0;
  for (serving::ChatEvent& event : held) deliver(request, std::move(event));
}

void Dispatcher::deliver(Request& request, serving::ChatEvent event) {
  if (request.paused) {
    request.pending_bytes += size_of(event);
    request.pending.push_back(std::move(event));
    return;
  }
  if (!hand_over(request, std::move(event))) {
    request.paused = true;
    set_flow(request, true);
  }
}

bool Dispatcher::hand_over(Request& request, serving::ChatEvent event) {
  Handed& handed = request.handed.at(static_cast<std::size_t>(event.choice));
  handed.any = handed.any || !event.ids.empty() || !event.deltas.empty();
  handed.tokens += event.ids.size();
  return request.sink(std::move(event));
}

void Dispatcher::set_flow(Request& request, bool paused) {
  for (const JobId& id : request.jobs) {
    Job& job = *table_.job(id);
    if (job.provider == nullptr || job.state != JobState::kRunning) continue;
    job.last_progress = clock_.now();
    job.provider->link->send(protocol::Flow{paused}, job.id, job.attempt);
  }
}

// The nodes were told to pause long ago and went on: their streams end here, the others are not
// touched.
void Dispatcher::overflow(Request& request) {
  log::warn("stream_overflow", {{"request", request.name}, {"bytes", request.pending_bytes}});
  const std::vector<JobId> jobs = request.jobs;
  for (const JobId& id : jobs) {
    Job& job = *table_.job(id);
    end_attempt(job, End::kCancel, "cancelled");
    fail_job(job, {ErrorCode::kResourceExhausted, "the client reads too slowly: more than " +
                                                      std::to_string(limits_.max_pending_bytes) +
                                                      " bytes are waiting for it"});
  }
}

void Dispatcher::resume(RequestId id) {
  Request* request = table_.request(id);
  if (request == nullptr || !request->paused) return;
  request->paused = false;
  while (!request->pending.empty()) {
    serving::ChatEvent event = std::move(request->pending.front());
    request->pending.pop_front();
    request->pending_bytes -= size_of(event);
    if (!hand_over(*request, std::move(event))) {
      request->paused = true;
      if (!request->pending.empty()) return;  // the nodes are still told to wait
    }
  }
  if (request->stream) release_kept(*request, Ending::kWhole);
  if (request->paused) return;
  set_flow(*request, false);
  erase_if_done(id);
}

void Dispatcher::erase_if_done(RequestId id) {
  const Request* request = table_.request(id);
  if (request == nullptr || !request->jobs.empty() || !request->pending.empty() ||
      !request->kept.empty()) {
    return;
  }
  table_.erase_request(id);
}

void Dispatcher::tick() {
  const Clock::Instant now = clock_.now();
  if (limits_.slept_through.count() > 0 && last_tick_ != Clock::Instant{} &&
      now - last_tick_ > limits_.slept_through) {
    forgive_silence(now);
  }
  last_tick_ = now;
  check_nodes(now);
  check_signs(now);
  check_jobs(now);
  mark_delivered(now);
  plan_loads(now);
  for (const CancelledAttempt& overdue : table_.take_overdue(now, limits_.cancel_ack_timeout)) {
    metrics_.cancel_unanswered();
    ProviderRecord* provider = registry_.find(overdue.provider);
    if (provider == nullptr) continue;
    log::warn("cancel_unanswered", {{"node", provider->node}, {"model", overdue.model}});
    router_.release_slot(*provider, overdue.model);
    pump(overdue.model);
  }
  for (const std::string& model : registry_.expire_busy(now)) pump(model);
  update_gauges();
}

void Dispatcher::check_nodes(Clock::Instant now) {
  for (ProviderRecord* provider : registry_.providers()) {
    if (now - provider->last_frame < limits_.dead_after) continue;
    const std::shared_ptr<NodeLink> link = provider->link;
    const ProviderId id = provider->id;
    link->close({ErrorCode::kUnavailable, "nothing was heard from the node for " +
                                              std::to_string(limits_.dead_after.count()) + " ms"});
    node_closed(id, link.get(), "silent");
  }
}

bool Dispatcher::still_sending(const Job& job) {
  return job.provider != nullptr && job.provider->link->queued_bytes() >= kSlowLineBytes;
}

void Dispatcher::check_jobs(Clock::Instant now) {
  std::vector<JobId> late, unanswered, unpaid;
  for (const auto& [id, job] : table_.jobs()) {
    const Request& request = *table_.request(job.request);
    switch (job.state) {
      case JobState::kQueued:
        if (now >= job.queue_deadline) late.push_back(id);
        break;
      case JobState::kPreparing:
        // A long prompt on a slow line has not even arrived, and the bank takes its time, though
        // not forever.
        if (job.waiting && now - job.asked_at >= limits_.money_timeout) {
          unpaid.push_back(id);
        } else if (still_sending(job) || job.waiting) {
          table_.job(id)->attempt_since = now;
        } else if (now - job.attempt_since >= limits_.lease_timeout) {
          late.push_back(id);
        } else if (limits_.hedge_after.count() > 0 && !job.hedge &&
                   now - job.attempt_since >= limits_.hedge_after) {
          unanswered.push_back(id);
        }
        break;
      case JobState::kRunning: {
        if (request.paused) break;
        const auto limit =
            job.num_frames == 0 ? limits_.first_token_timeout : limits_.stall_timeout;
        if (now - job.last_progress >= limit) late.push_back(id);
        break;
      }
    }
  }
  for (const JobId& id : unanswered) hedge(*table_.job(id));
  for (const JobId& id : unpaid) {
    Job* job = table_.job(id);
    if (job == nullptr) continue;
    const RequestId request_id = job->request;
    const std::string model = table_.request(request_id)->model;
    end_attempt(*job, End::kCancel, "cancelled");
    fail_job(*job, {ErrorCode::kUnavailable, "the accounts cannot be reached now; try again"});
    erase_if_done(request_id);
    pump(model);
  }
  for (const JobId& id : late) {
    Job* job = table_.job(id);
    if (job == nullptr) continue;
    const RequestId request_id = job->request;
    const std::string model = table_.request(request_id)->model;
    if (job->state == JobState::kQueued) {
      const std::size_t listed = router_.num_candidates(model, {});
      std::string waited =
          ", waited " + std::to_string(limits_.queue_timeout.count() / 1000) + " s";
      if (job->last_refusal) waited += "; last answer: " + job->last_refusal->message;
      if (job->committed) {
        waited =
            "the node that served this request was lost and no other could continue its answer"
            " within " +
            std::to_string(limits_.queue_timeout.count() / 1000) + " s";
        fail_job(*job, {ErrorCode::kUnavailable, waited});
        erase_if_done(request_id);
        continue;
      }
      Error late_error =
          listed == 0
              ? Error{ErrorCode::kUnavailable, "no node serves model '" + model + "' now" + waited}
              : Error{ErrorCode::kResourceExhausted,
                      "model '" + model + "': its " + std::to_string(listed) + " nodes are busy (" +
                          busy_reasons(model) + ")" + waited};
      if (listed > 0) late_error.retry_after_s = retry_after(model);
      fail_job(*job, std::move(late_error));
    } else {
      log::warn("attempt_timed_out", {{"node", job->provider->node},
                                      {"job", protocol::to_hex(id)},
                                      {"started", job->state == JobState::kRunning}});
      if (job->hedge) {
        job->excluded.push_back(job->provider->id);
        promote_hedge(*job, End::kCancel, "timed_out");
        continue;
      }
      attempt_failed(*job, End::kCancel, "timed_out",
                     {ErrorCode::kDeadlineExceeded, "the node made no progress in time"},
                     Blame::kNode);
    }
    erase_if_done(request_id);
  }
}

}  // namespace flotilla::coordinator
