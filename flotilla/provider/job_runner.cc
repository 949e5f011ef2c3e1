#include "flotilla/provider/job_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "flotilla/api/chat_request.h"
#include "flotilla/gates/judge.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"
#include "flotilla/provider/chat_job.h"
#include "flotilla/provider/tokens_split.h"

namespace flotilla::provider {

using protocol::RefuseReason;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t kMaxRemembered = 8'192;
constexpr std::size_t kMaxRecent = 16'384;
// The engine knows its memory itself.
constexpr gates::Modes kNoEstimates{gates::Mode::kOff, gates::Mode::kOff, gates::Mode::kOff};
// A step that is not over after five times the longest one before it, and this long, is stuck.
// Until a first step has ended nobody knows how slow the machine is.
constexpr milliseconds kLongStep{30'000}, kLongFirstStep{120'000};

// What the coordinator may do with a failure: another node, or tell the client.
RefuseReason refuse_reason(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kContextLength:
    case ErrorCode::kTooLarge:
    case ErrorCode::kUnsupported:
      return RefuseReason::kInvalidRequest;
    case ErrorCode::kNotFound:
      return RefuseReason::kNotLoaded;
    case ErrorCode::kResourceExhausted:
      return RefuseReason::kBusy;
    case ErrorCode::kUnavailable:
    case ErrorCode::kModelFault:
      return RefuseReason::kUnhealthy;
    default:
      return RefuseReason::kOther;
  }
}

}  // namespace

JobRunner::JobRunner(const net::Strand& strand, ModelManager& models, WorkerPool& workers,
                     const Clock& clock, JobOptions options, Send send,
                     std::function<void()> on_load_changed)
    : strand_(strand),
      models_(models),
      workers_(workers),
      clock_(clock),
      options_(options),
      send_(std::move(send)),
      on_load_changed_(std::move(on_load_changed)),
      lease_timer_(strand),
      recent_(kMaxRecent) {}

void JobRunner::refuse(const AttemptKey& key, RefuseReason reason, const Error& error,
                       std::uint32_t retry_after_ms) {
  remember_ended(key);
  send_(
      protocol::Refuse{
          .reason = reason, .error = protocol::to_wire(error), .retry_after_ms = retry_after_ms},
      key);
}

void JobRunner::on_prepare(const AttemptKey& key, protocol::Prepare prepare) {
  // A repeated frame, or one that its cancel has overtaken.
  if (jobs_.contains(key) || ended_.contains(key)) return;
  auto engine = models_.find(prepare.model);
  // The router's gates, asked with what is true here and now.
  gates::SlotFacts slot;
  slot.resident = engine.ok();
  if (engine.ok()) {
    slot.healthy = (*engine)->healthy();
    slot.num_jobs = num_of_model(prepare.model);
    slot.max_jobs =
        static_cast<std::uint32_t>((*engine)->info().max_concurrent) + options_.max_waiting;
  }
  const gates::Verdict verdict = gates::judge({.draining = draining_}, slot, {}, {}, kNoEstimates);
  switch (verdict.reason) {
    case gates::Reason::kNone:
      break;
    case gates::Reason::kDraining:
      return refuse(key, RefuseReason::kDraining,
                    {ErrorCode::kUnavailable, "this node takes no new work"});
    case gates::Reason::kEngineUnhealthy:
      return refuse(key, RefuseReason::kUnhealthy,
                    {ErrorCode::kUnavailable, "model '" + prepare.model + "' is being repaired"},
                    1'000);
    case gates::Reason::kNoSlot:
      return refuse(key, RefuseReason::kBusy,
                    {ErrorCode::kResourceExhausted, "this node has its limit of " +
                                                        std::to_string(verdict.available) +
                                                        " jobs for '" + prepare.model + "'"},
                    std::max(100u, expected_wait_ms(**engine, prepare.model)));
    default:
      return refuse(key, RefuseReason::kNotLoaded, engine.error());
  }
  Job& job = jobs_[key];
  job.serial = next_serial_++;
  job.model = prepare.model;
  job.engine = *engine;
  auto task = [weak = weak_from_this(), strand = strand_, key, serial = job.serial,
               engine = std::move(*engine),
               prepare = std::make_shared<protocol::Prepare>(std::move(prepare))] {
    const auto render = [&]() -> Prepared {
      FLOTILLA_TRY(const api::ChatRequest request, api::from_job_json(prepare->job));
      FLOTILLA_TRY(
          engine::ChatJob chat,
          to_chat_job(request, engine->info(), static_cast<int>(prepare->choice), prepare->tenant));
      chat.first_token_within = std::chrono::milliseconds(prepare->first_token_within_ms);
      return engine->prepare(std::move(chat));
    };
    strand.post([weak, key, serial, prepared = render()]() mutable {
      if (auto self = weak.lock()) self->on_prepared(key, serial, std::move(prepared));
    });
  };
  if (!workers_.try_post(std::move(task))) {
    forget(key);
    return refuse(key, RefuseReason::kBusy,
                  {ErrorCode::kResourceExhausted, "too many prompts are being prepared"}, 100);
  }
}

void JobRunner::on_prepared(const AttemptKey& key, std::uint64_t serial, Prepared prepared) {
  const auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.serial != serial) return;  // cancelled meanwhile
  Job& job = it->second;
  if (!prepared.ok()) {
    const Error error = prepared.error();
    forget(key);
    return refuse(key, refuse_reason(error.code), error);
  }
  job.prepared = std::move(*prepared);
  job.state = State::kLeased;
  job.lease_ends = clock_.now() + options_.lease_time;
  protocol::Lease lease;
  const auto prompt_tokens = static_cast<std::int64_t>(job.prepared->prompt_ids.size());
  const std::int64_t room =
      std::max<std::int64_t>(0, job.engine->info().context_length - prompt_tokens);
  const std::int64_t asked = job.prepared->job.max_tokens;
  job.prompt_tokens = prompt_tokens;
  lease.prompt_tokens = static_cast<std::uint64_t>(prompt_tokens);
  lease.prompt_digest = job.prepared->prompt_digest;
  lease.granted_tokens = static_cast<std::uint64_t>(asked > 0 ? std::min(asked, room) : room);
  lease.granted_bytes = job.engine->info().state_cost.bytes(
      prompt_tokens + static_cast<std::int64_t>(lease.granted_tokens));
  lease.queue_ms = expected_wait_ms(*job.engine, job.model);
  lease.valid_ms = static_cast<std::uint32_t>(options_.lease_time.count());
  send_(std::move(lease), key);
  arm_lease_timer();
}

void JobRunner::on_start(const AttemptKey& key, protocol::Start start) {
  const auto it = jobs_.find(key);
  if (it == jobs_.end()) {
    if (const auto ended = ended_.find(key); ended != ended_.end() && ended->second)
      return;  // cancelled: no frame follows
    return refuse(key, RefuseReason::kOther,
                  {ErrorCode::kDeadlineExceeded, "the lease has ended or was never given"});
  }
  Job& job = it->second;
  if (job.state != State::kLeased) return;  // repeated
  if (!start.prompt_digest.empty() && start.prompt_digest != job.prepared->prompt_digest) {
    forget(key);
    return refuse(
        key, RefuseReason::kPromptMismatch,
        {ErrorCode::kDataLoss, "this node renders another prompt than the one that was begun"});
  }
  if (job.prepared->job.count_only) {
    send_(to_wire_finish(counted(*job.prepared), false, 0), key);
    remember_ended(key);
    forget(key);
    return;
  }
  const auto limit = static_cast<std::int64_t>(
      std::min<std::uint64_t>(start.max_tokens, std::numeric_limits<std::int64_t>::max()));
  const std::int64_t asked = job.prepared->job.max_tokens;
  const bool is_less = limit > 0 && (asked <= 0 || limit < asked);
  if (!start.resume_ids.empty() || is_less) {
    auto changed = std::make_shared<engine::PreparedJob>(*job.prepared);
    changed->job.resume_ids = start.resume_ids;
    if (is_less) changed->job.max_tokens = limit;
    job.prepared = std::move(changed);
  }
  job.num_resumed = start.resume_ids.size();
  job.trim.emplace(start.emitted, start.resume_ids.size());
  job.tap = std::make_shared<EngineTap>(
      strand_, job.engine,
      [weak = weak_from_this(), key, serial = job.serial](engine::TokenEvent event) {
        if (auto self = weak.lock()) self->on_token_event(key, serial, std::move(event));
      });
  job.tap->set_link_full(link_full_);
  job.state = State::kRunning;
  job.started = job.last_token = clock_.now();
  const auto request = job.engine->submit(std::exchange(job.prepared, nullptr), job.tap->sink());
  if (!request.ok()) {
    const Error error = request.error();
    forget(key);
    return refuse(key, refuse_reason(error.code), error);
  }
  job.tap->set_request(*request);
  on_load_changed_();
}

void JobRunner::on_token_event(const AttemptKey& key, std::uint64_t serial,
                               engine::TokenEvent event) {
  const auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.serial != serial) return;
  Job& job = it->second;
  const auto now = clock_.now();
  const auto num_new = static_cast<std::int64_t>(event.ids.size());
  if (num_new > 0) {
    Speed& speed = speeds_[job.model];
    if (job.last_token == job.started) {
      speed.add_prefill(job.prompt_tokens, now - job.started);
    } else {
      speed.add_decode(num_new, now - job.last_token);
    }
    job.last_token = now;
  }
  job.any_calls = job.any_calls || has_calls(event);
  job.trim->apply(event);
  if (job.num_cancels == 0) {
    const std::int64_t cached = event.cached_tokens;
    for (protocol::Tokens& frame : split_to_limits(to_tokens(event, CallIds(key.job)))) {
      if (job.num_ids == 0 && cached > 0 && cached <= std::numeric_limits<std::int32_t>::max())
        frame.cached_tokens = static_cast<std::uint32_t>(cached);
      job.num_ids += frame.ids.size();
      send_(std::move(frame), key);
    }
  }
  if (event.finish) finish(key, job, *event.finish);
}

void JobRunner::finish(const AttemptKey& key, Job& job, const engine::Finish& outcome) {
  speeds_[job.model].add_job(clock_.now() - job.started);
  note_end(key, job, &outcome);
  if (job.num_cancels > 0) {
    for (std::uint32_t i = 0; i < job.num_cancels; ++i) {
      send_(protocol::CancelAck{.was_running = true, .usage = to_wire(outcome.usage)}, key);
    }
  } else {
    protocol::Finish last = to_wire_finish(outcome, job.any_calls, job.num_ids);
    if (outcome.reason != engine::FinishReason::kError && job.trim->remaining() > 0) {
      last.reason = protocol::WireFinishReason::kError;
      last.error = protocol::to_wire(
          {ErrorCode::kDataLoss, "the continued answer is not the one that was begun"});
    }
    if (outcome.error) {
      log::warn("job_failed", {{"job", protocol::to_hex(key.job)},
                               {"model", job.model},
                               {"code", flotilla::to_string(outcome.error->code)}});
    }
    send_(std::move(last), key);
  }
  const bool was_cancelled = job.num_cancels > 0;
  remember_ended(key);
  ended_[key] = was_cancelled;
  forget(key);
}

void JobRunner::on_cancel(const AttemptKey& key) {
  const auto it = jobs_.find(key);
  if (it != jobs_.end() && it->second.state == State::kRunning) {
    // The ack follows the engine's last event, so that it is true.
    if (it->second.num_cancels++ == 0) it->second.tap->cancel();
    return;
  }
  forget(key);
  remember_ended(key);
  ended_[key] = true;
  send_(protocol::CancelAck{}, key);
}

// `outcome` is null when the connection went away first.
void JobRunner::note_end(const AttemptKey& key, const Job& job, const engine::Finish* outcome) {
  protocol::AttemptEnd end;
  end.job = protocol::to_hex(key.job);
  end.attempt = key.attempt;
  end.first_token = job.num_resumed;
  end.end_token = job.num_resumed + job.num_ids;
  end.prompt_tokens = job.prompt_tokens;
  if (outcome != nullptr) {
    end.finished = outcome->reason != engine::FinishReason::kError && job.num_cancels == 0 &&
                   job.trim->remaining() == 0;
    end.cached_tokens = outcome->usage.cached_tokens;
  }
  recent_.note(std::move(end));
}

void JobRunner::on_recall(const protocol::Recall& recall) {
  send_(protocol::Recalled{recent_.of(recall.jobs)}, {});
}

void JobRunner::on_flow(const AttemptKey& key, bool paused) {
  const auto it = jobs_.find(key);
  if (it != jobs_.end() && it->second.tap) it->second.tap->set_reader_full(paused);
}

void JobRunner::set_link_full(bool full) {
  if (std::exchange(link_full_, full) == full) return;
  for (auto& [key, job] : jobs_) {
    if (job.tap) job.tap->set_link_full(full);
  }
}

void JobRunner::drop_all() {
  for (auto& [key, job] : jobs_) {
    if (!job.tap) continue;
    note_end(key, job, nullptr);
    job.tap->detach();
    job.tap->set_link_full(false);  // a held sequence would never see its cancel answered
    job.tap->cancel();
  }
  jobs_.clear();
  ended_.clear();
  ended_order_.clear();
  lease_timer_.cancel();
  link_full_ = false;
  on_load_changed_();
}

void JobRunner::forget(const AttemptKey& key) {
  if (jobs_.erase(key) > 0) on_load_changed_();
}

void JobRunner::remember_ended(const AttemptKey& key) {
  if (!ended_.emplace(key, false).second) return;
  ended_order_.push_back(key);
  if (ended_order_.size() > kMaxRemembered) {
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
}

void JobRunner::arm_lease_timer() {
  std::optional<Clock::Instant> first;
  for (const auto& [key, job] : jobs_) {
    if (job.state == State::kLeased && (!first || job.lease_ends < *first)) first = job.lease_ends;
  }
  if (!first) return lease_timer_.cancel();
  const auto wait = std::chrono::ceil<milliseconds>(*first - clock_.now());
  lease_timer_.after(std::max(wait, milliseconds(1)), [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->end_leases();
  });
}

void JobRunner::end_leases() {
  const auto now = clock_.now();
  const std::size_t ended = std::erase_if(jobs_, [&](const auto& entry) {
    return entry.second.state == State::kLeased && entry.second.lease_ends <= now;
  });
  if (ended > 0) on_load_changed_();
  arm_lease_timer();
}

std::uint32_t JobRunner::num_of_model(std::string_view model) const {
  return static_cast<std::uint32_t>(std::count_if(
      jobs_.begin(), jobs_.end(), [&](const auto& entry) { return entry.second.model == model; }));
}

std::uint32_t JobRunner::expected_wait_ms(const engine::TextEngine& engine,
                                          const std::string& model) const {
  const auto slots = std::max<std::int64_t>(1, engine.info().max_concurrent);
  const auto ahead = static_cast<std::int64_t>(num_of_model(model)) - slots;
  const auto speed = speeds_.find(model);
  if (ahead <= 0 || speed == speeds_.end()) return 0;
  const double seconds =
      speed->second.job_seconds() * static_cast<double>(ahead) / static_cast<double>(slots);
  return static_cast<std::uint32_t>(std::min(seconds * 1000, 600'000.0));
}

std::vector<std::string> JobRunner::stuck_models() const {
  std::vector<std::string> stuck;
  for (const ModelRecord& record : models_.list()) {
    if (!record.engine) continue;
    const engine::EngineStats stats = record.engine->stats();
    const milliseconds limit = stats.longest_step.count() == 0
                                   ? kLongFirstStep
                                   : std::max(kLongStep, 5 * stats.longest_step);
    if (stats.current_step > limit) stuck.push_back(record.name);
  }
  return stuck;
}

std::vector<protocol::SlotLoad> JobRunner::loads() const {
  std::vector<protocol::SlotLoad> loads;
  for (const ModelRecord& record : models_.list()) {
    if (!record.engine) continue;
    const engine::EngineStats stats = record.engine->stats();
    protocol::SlotLoad load;
    load.model = record.name;
    load.num_running = stats.num_running;
    load.num_waiting = stats.num_waiting;
    load.kv_bytes_used = stats.kv_bytes_used;
    load.kv_bytes_total = stats.kv_bytes_total;
    if (const auto speed = speeds_.find(record.name); speed != speeds_.end()) {
      load.decode_tokens_per_s = speed->second.decode_tokens_per_s();
      load.prefill_tokens_per_s = speed->second.prefill_tokens_per_s();
    }
    load.healthy = record.engine->healthy();
    loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace flotilla::provider
