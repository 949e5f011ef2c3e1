// What jobs cost: held before they start, settled when they have ended.
#include <algorithm>

#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {
namespace {
constexpr std::chrono::milliseconds kMarkEvery{1'000};
}

// The lease says how long the prompt is and how much the node will generate at most, so what is
// held is the true worst case; no other node generates more (Start says so). A node of the payer's
// own needs nothing, until another one takes over.
bool Dispatcher::wait_for_money(Job& job, const protocol::Lease& lease) {
  const Request& request = *table_.request(job.request);
  if (till_ == nullptr || job.funded || request.is_free ||
      !till_->must_hold(request.model, request.account, job.provider->id)) {
    return false;
  }
  job.waiting = lease;
  if (std::exchange(job.asked_to_hold, true)) return true;
  const auto prompt = static_cast<std::int64_t>(job.prompt_tokens);
  ReserveOrder order;
  order.job = job.id;
  order.account = request.account;
  order.key = ApiKeyId{request.key};
  order.model = request.model;
  order.streamed = request.stream;
  order.prompt_tokens = job.choice == 0 ? prompt : 0;  // the choices share it
  order.max_output_tokens = static_cast<std::int64_t>(job.max_output);
  for (const auto& [node, count] : job.served) {
    if (count > 0) order.nodes.push_back(node);
  }
  order.nodes.push_back(job.provider->id);
  job.known_nodes = order.nodes;
  job.asked_at = clock_.now();
  till_->hold(order, [this, id = job.id, order](Result<Reservation> made) {
    on_held(id, order, std::move(made));
  });
  return true;
}

void Dispatcher::on_held(const JobId& id, const ReserveOrder& order, Result<Reservation> made) {
  Job* job = table_.job(id);
  if (job == nullptr) {  // cancelled meanwhile
    if (!made.ok() || !made->held()) return;
    EndedJob ended{.job = id,
                   .account = order.account,
                   .key = order.key,
                   .model = order.model,
                   .reservation = *made,
                   .tokens = {},
                   .served = {},
                   .outcome = "cancelled"};
    till_->end(std::move(ended));
    return;
  }
  job->asked_to_hold = false;
  const RequestId request = job->request;
  const std::string model = table_.request(request)->model;
  if (!made.ok()) {
    end_attempt(*job, End::kCancel, "cancelled");
    fail_job(*job, std::move(made).error());
    pump(model);
  } else {
    job->funded = true;
    job->reservation = *made;
    // The attempt that asked may be over; the next one finds the money held.
    const std::optional<protocol::Lease> lease = std::exchange(job->waiting, std::nullopt);
    if (lease && job->provider != nullptr) start_leased(*job, *lease);
  }
  erase_if_done(request);
  update_gauges();
}

// After a crash only nodes that the job was given to are asked what became of it.
void Dispatcher::note_node(Job& job) {
  if (!job.reservation.held()) return;
  const ProviderId& node = job.provider->id;
  auto& known = job.known_nodes;
  if (std::find(known.begin(), known.end(), node) != known.end()) return;
  known.push_back(node);
  till_->continued_on(job.id, node);
}

void Dispatcher::start_leased(Job& job, const protocol::Lease& lease) {
  const std::string model = table_.request(job.request)->model;
  if (!begin_attempt(job, lease)) {
    pump(model);
    return;
  }
  if (job.state == JobState::kRunning && table_.request(job.request)->paused)
    job.provider->link->send(protocol::Flow{true}, job.id, job.attempt);
}

void Dispatcher::note_served(Job& job, std::uint64_t num_tokens) {
  if (job.served.empty() || job.served.back().first != job.provider->id) {
    job.served.emplace_back(job.provider->id, 0);
  }
  job.served.back().second += num_tokens;
}

// What the client has seen is paid for, whichever nodes it came from: each token once. What it has
// not seen is not.
void Dispatcher::pay(const Job& job, std::string_view outcome) {
  Request& request = *table_.request(job.request);
  if (till_ == nullptr || request.is_free) return;
  EndedJob ended{.job = job.id,
                 .account = request.account,
                 .key = ApiKeyId{request.key},
                 .model = request.model,
                 .reservation = job.reservation,
                 .delivered = job.committed,
                 .tokens = {},
                 .served = job.served,
                 .outcome = std::string(outcome)};
  if (job.committed) {
    if (job.choice == 0) {
      ended.tokens.prompt = static_cast<std::int64_t>(job.prompt_tokens);
      ended.tokens.cached = job.cached_tokens;
    }
    ended.tokens.output = static_cast<std::int64_t>(job.ids.size());
  }
  // An answer that is not streamed is handed over when its last choice is there, or not at all.
  if (job.committed && (request.paused || !request.stream)) {
    request.kept.push_back({job.choice, std::move(ended)});
  } else {
    till_->end(std::move(ended));
  }
}

void Dispatcher::release_kept(Request& request, Ending ending) {
  for (auto& [choice, ended] : std::exchange(request.kept, {})) {
    if (ending == Ending::kLeft) {
      const Handed& handed = request.handed.at(choice);
      ended.delivered = request.stream && handed.any;
      ended.tokens.output = std::min(ended.tokens.output, static_cast<std::int64_t>(handed.tokens));
      if (!ended.delivered) ended.tokens = {};
    }
    till_->end(std::move(ended));
  }
}

void Dispatcher::taken(RequestId id) {
  Request* request = table_.request(id);
  if (request == nullptr) return;
  if (!request->stream && request->jobs.empty()) release_kept(*request, Ending::kWhole);
  erase_if_done(id);
  update_gauges();
}

// How far streams have come, for the case that this process dies. With many of them less often:
// each mark is a row that is written.
void Dispatcher::mark_delivered(Clock::Instant now) {
  if (till_ == nullptr) return;
  const auto every =
      std::max<std::chrono::milliseconds>(kMarkEvery, std::chrono::milliseconds(table_.num_jobs()));
  for (auto& [id, job] : table_.jobs()) {
    if (!job.committed || !job.reservation.held() || now - job.marked_at < every) continue;
    const Request& request = *table_.request(job.request);
    const std::uint64_t handed = request.handed.at(job.choice).tokens;
    if (!request.stream || handed == job.num_marked) continue;
    job.num_marked = handed;
    job.marked_at = now;
    till_->delivered(id, {static_cast<std::int64_t>(job.prompt_tokens), job.cached_tokens,
                          static_cast<std::int64_t>(handed)});
  }
}

void Dispatcher::ask_about_earlier_jobs(ProviderRecord& provider,
                                        const protocol::Register& message) {
  if (!message.answers_recall || !recall_.questions) return;
  for (protocol::Recall& question : recall_.questions(provider.id)) {
    provider.link->send(std::move(question), {}, 0);
  }
}

}  // namespace flotilla::coordinator
