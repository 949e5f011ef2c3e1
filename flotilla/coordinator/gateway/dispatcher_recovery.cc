// Nodes that vanish, fall silent, get stuck or drain, and answers that go on elsewhere.
#include <algorithm>

#include "flotilla/base/check.h"
#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {

using std::chrono::milliseconds;

namespace {
constexpr std::uint32_t kShunnedFrom = 3;  // faults in a row
}  // namespace

void Dispatcher::begin_anew(Job& job) {
  FLOTILLA_CHECK(!job.committed, "what the client has seen cannot be taken back");
  job.held.clear();
  job.held_bytes = 0;
  job.ids.clear();
  job.emitted = {};
  job.num_resumed = 0;
  job.mixed_numerics = false;
  job.served.clear();
}

// The node has rendered the prompt: it continues what was begun, if it is the same prompt for the
// same weights, or begins.
bool Dispatcher::begin_attempt(Job& job, const protocol::Lease& lease) {
  const Request& request = *table_.request(job.request);
  ProviderRecord& provider = *job.provider;
  const protocol::ModelOffer& offer = provider.slots.at(request.model).offer;
  const bool same = !job.prompt_digest.empty() && lease.prompt_digest == job.prompt_digest &&
                    lease.prompt_tokens == job.prompt_tokens && !job.model_digest.empty() &&
                    offer.model_digest == job.model_digest;
  if (job.begun() && !same) {
    log::warn("continuation_refused", {{"request", request.name},
                                       {"job", protocol::to_hex(job.id)},
                                       {"node", provider.node},
                                       {"same_prompt", lease.prompt_digest == job.prompt_digest},
                                       {"same_model", offer.model_digest == job.model_digest}});
    if (job.committed) {
      attempt_failed(job, End::kCancel, "mismatched",
                     {ErrorCode::kUnavailable,
                      "the node that served this request was lost and another one cannot continue "
                      "its answer exactly"},
                     Blame::kNode);
      return false;
    }
    begin_anew(job);
  }
  if (!job.begun()) {
    job.prompt_tokens = lease.prompt_tokens;
    job.cached_tokens = 0;
    // What was held bounds it for good, and where it began bounds what continues it.
    if (!job.funded && !job.asked_to_hold) {
      const auto context =
          static_cast<std::uint64_t>(std::max<std::int64_t>(0, offer.context_length));
      job.max_output = lease.granted_tokens > 0        ? lease.granted_tokens
                       : context > lease.prompt_tokens ? context - lease.prompt_tokens
                                                       : 0;
      // Without a bound nothing could be held for it, whichever node goes on with it later.
      if (job.max_output == 0 && till_ != nullptr && !request.is_free &&
          till_->must_hold(request.model, request.account, ProviderId{})) {
        attempt_failed(job, End::kCancel, "failed",
                       {ErrorCode::kInternal, "the node's lease bounds no answer"}, Blame::kNode);
        return false;
      }
    }
  }
  if (wait_for_money(job, lease)) return true;
  note_node(job);
  protocol::Start start;
  start.max_tokens = job.max_output;
  job.num_resumed = job.ids.size();
  if (job.begun()) {
    start.resume_ids = job.ids;
    start.emitted = job.emitted;
    start.prompt_digest = job.prompt_digest;
    job.mixed_numerics = job.mixed_numerics || offer.numerics_id != job.numerics_id;
    metrics_.answer_continued(job.mixed_numerics);
    log::info("job_continued", {{"request", request.name},
                                {"job", protocol::to_hex(job.id)},
                                {"attempt", job.attempt},
                                {"node", provider.node},
                                {"tokens", job.ids.size()},
                                {"mixed_numerics", job.mixed_numerics}});
  } else {
    if (request.ask) {
      router_.learn_prompt(request.model, *request.ask, provider,
                           static_cast<std::int64_t>(lease.prompt_tokens));
    }
    job.prompt_digest = lease.prompt_digest;
    job.model_digest = offer.model_digest;
    job.numerics_id = offer.numerics_id;
  }
  job.state = JobState::kRunning;
  job.started_at = job.attempt_since = job.last_progress = clock_.now();
  provider.link->send(std::move(start), job.id, job.attempt);
  return true;
}

// New tokens came: whatever went wrong before is over.
void Dispatcher::note_progress(Job& job, Clock::Instant now) {
  job.strikes = 0;
  job.excluded.clear();
  if (!job.lost_at) return;
  metrics_.answer_gap(now - *job.lost_at);
  job.lost_at.reset();
}

void Dispatcher::heard(ProviderRecord& provider, Clock::Instant now) {
  provider.last_frame = now;
  provider.pulse.note(now);
  if (!provider.silent) return;
  provider.silent = false;
  log::info("provider_heard_again", {{"node", provider.node},
                                     {"faults", machines_.num_faults(provider.id)},
                                     {"jobs", provider.jobs.size()}});
  cool(provider, now);
  pump_all();
}

void Dispatcher::cool(ProviderRecord& provider, Clock::Instant now) {
  const milliseconds wait = machines_.cooldown(provider.id, now);
  provider.cooling_until = wait.count() > 0 ? now + wait : Clock::Instant{};
  provider.shunned = machines_.num_faults(provider.id) >= kShunnedFrom;
  registry_.reindex_all(provider);
}

void Dispatcher::check_signs(Clock::Instant now) {
  bool gained = false;
  for (ProviderRecord* provider : registry_.providers()) {
    if (provider->cooling() && now >= provider->cooling_until) {
      provider->cooling_until = {};
      registry_.reindex_all(*provider);
      gained = true;
    }
    if (provider->hand_over_at && now >= *provider->hand_over_at) {
      move_jobs(*provider, nullptr, Elsewhere::kFreeNow, "handed_over");
    }
    if (!provider->shows_progress || provider->jobs.empty()) continue;
    if (provider->silent) {
      move_jobs(*provider, nullptr, Elsewhere::kListed, "stalled");
    } else if (provider->pulse.overdue(now)) {
      fall_silent(*provider);
    }
  }
  if (gained) pump_all();
}

// The link counts as alive still: the process may have been stopped, or the line hangs.
void Dispatcher::fall_silent(ProviderRecord& provider) {
  const Clock::Instant now = clock_.now();
  provider.silent = true;
  machines_.fault(provider.id, now);
  registry_.reindex_all(provider);
  metrics_.node_silent();
  log::warn(
      "provider_silent",
      {{"node", provider.node},
       {"jobs", provider.jobs.size()},
       {"ms", std::chrono::duration_cast<milliseconds>(now - provider.pulse.last()).count()}});
  move_jobs(provider, nullptr, Elsewhere::kListed, "stalled");
}

// Jobs that nobody else could take stay: the node may wake up and go on as if nothing had happened.
void Dispatcher::move_jobs(ProviderRecord& provider, const std::string* model, Elsewhere elsewhere,
                           std::string_view how) {
  const std::vector<JobId> jobs(provider.jobs.begin(), provider.jobs.end());
  for (const JobId& id : jobs) {
    Job* job = table_.job(id);
    if (job == nullptr || job->provider != &provider) continue;
    const RequestId request_id = job->request;
    const std::string of = table_.request(request_id)->model;
    if (model != nullptr && of != *model) continue;
    RouteWish wish = wish_for(*job);
    if (!job->committed) wish.model_digest = {};
    const bool planned = elsewhere == Elsewhere::kFreeNow;
    if (planned ? !router_.has_slot(of, wish) : router_.num_reachable(of, wish) == 0) continue;
    attempt_failed(*job, End::kCancel, how,
                   {ErrorCode::kUnavailable, planned ? "the node that served this request drains"
                                                     : "the node that served this request stalled"},
                   planned ? Blame::kNobody : Blame::kBadLuck, jobs.size());
    erase_if_done(request_id);
  }
}

void Dispatcher::on_progress(ProviderRecord& provider, const protocol::Progress& message) {
  bool gained = false;
  std::vector<std::string> stuck;
  for (auto& [model, slot] : provider.slots) {
    const bool is_stuck =
        std::find(message.stuck.begin(), message.stuck.end(), model) != message.stuck.end();
    if (is_stuck) stuck.push_back(model);
    if (slot.stuck == is_stuck) continue;
    slot.stuck = is_stuck;
    gained = gained || !is_stuck;
    registry_.reindex(provider, model);
    if (!is_stuck) continue;
    machines_.fault(provider.id, clock_.now());
    log::warn("provider_model_stuck", {{"node", provider.node}, {"model", model}});
  }
  for (const std::string& model : stuck) {
    move_jobs(provider, &model, Elsewhere::kListed, "stalled");
  }
  if (gained) pump_all();
}

// It takes no new jobs. What it does not finish in time goes elsewhere shortly before it leaves.
void Dispatcher::on_drain(ProviderRecord& provider, const protocol::Drain& message) {
  constexpr milliseconds kMargin{1'000};
  log::info("provider_draining", {{"node", provider.node},
                                  {"reason", message.reason},
                                  {"jobs", provider.jobs.size()},
                                  {"deadline_ms", message.deadline_ms}});
  const milliseconds deadline(message.deadline_ms);
  provider.draining = true;
  provider.hand_over_at =
      clock_.now() + deadline - std::min(deadline, std::max(kMargin, deadline / 5));
  registry_.reindex_all(provider);
}

// Nobody is blamed for the time in which this process did not run.
void Dispatcher::forgive_silence(Clock::Instant now) {
  for (ProviderRecord* provider : registry_.providers()) {
    provider->last_frame = now;
    provider->pulse.start(now);
  }
  for (auto& [id, job] : table_.jobs()) {
    job.attempt_since = std::max(job.attempt_since, now);
    job.asked_at = std::max(job.asked_at, now);
    job.last_progress = std::max(job.last_progress, now);
  }
}

}  // namespace flotilla::coordinator
