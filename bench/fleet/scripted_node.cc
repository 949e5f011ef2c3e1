#include "bench/fleet/scripted_node.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <variant>

#include "flotilla/base/overloaded.h"

namespace flotilla::bench {

using namespace std::chrono_literals;

namespace {
constexpr std::size_t kFullLink = 512u << 10;  // bytes in front of the socket
constexpr int kFramesPerTurn = 256;
constexpr std::uint64_t kContext = 1u << 20;
constexpr TokenId kToken = 7;
}  // namespace

ScriptedNode::ScriptedNode(net::IoRuntime& io, const Clock& clock, NodeSetup setup,
                           NodeCounters& counters)
    : io_(io),
      clock_(clock),
      strand_(io),
      setup_(std::move(setup)),
      counters_(counters),
      timer_(strand_),
      flow_timer_(strand_) {}

void ScriptedNode::start(provider::LinkOptions options) {
  auto self = shared_from_this();
  provider::LinkEvents events;
  events.make_register = [self] { return self->make_register(); };
  events.make_heartbeat = [self] { return self->make_heartbeat(); };
  events.on_up = [self, was = false](const protocol::Registered&) mutable {
    ++self->counters_.up;
    if (!std::exchange(was, true)) ++self->counters_.joined;
  };
  events.on_message = [self](const protocol::FrameHeader& header,
                             protocol::CoordinatorMessage message) {
    self->on_message(header, std::move(message));
  };
  events.on_down = [self](const std::string&) {
    --self->counters_.up;
    ++self->counters_.lost;
    self->jobs_.clear();
    self->timetable_.clear();
    self->flowing_.clear();
  };
  events.on_failed = [self](const Error&, bool) { ++self->counters_.refused; };
  strand_.post([self, options = std::move(options), events = std::move(events)]() mutable {
    self->link_ = std::make_shared<provider::CoordinatorLink>(
        self->io_, self->strand_, self->clock_, std::move(options), std::move(events));
    self->link_->start();
  });
}

void ScriptedNode::stop() {
  strand_.post([self = shared_from_this()] {
    self->timer_.cancel();
    self->flow_timer_.cancel();
    self->jobs_.clear();
    if (self->link_) self->link_->stop("the bench is over");
    self->link_.reset();
  });
}

protocol::Register ScriptedNode::make_register() const {
  protocol::Register out;
  out.software = "fleet_bench";
  out.hardware.memory_bytes = out.hardware.memory_cap_bytes = std::uint64_t{64} << 30;
  protocol::ModelOffer& offer = out.models.emplace_back();
  offer.id = setup_.model;
  offer.family = "scripted";
  offer.model_digest = "fleet-bench";
  offer.numerics_id = "fleet-bench";
  offer.context_length = kContext;
  offer.max_concurrent = setup_.slots;
  return out;
}

protocol::Heartbeat ScriptedNode::make_heartbeat() const {
  protocol::Heartbeat out;
  protocol::SlotLoad& load = out.slots.emplace_back();
  load.model = setup_.model;
  load.num_running = static_cast<std::uint32_t>(jobs_.size());
  return out;
}

void ScriptedNode::on_message(const protocol::FrameHeader& header,
                              protocol::CoordinatorMessage message) {
  const auto at = jobs_.find(header.job);
  Job* job = at != jobs_.end() && at->second.attempt == header.attempt ? &at->second : nullptr;
  std::visit(Overloaded{[&](protocol::Prepare& m) { prepare(header.job, header.attempt, m); },
                        [&](protocol::Start& m) {
                          if (job != nullptr) begin(header.job, *job, m);
                        },
                        [&](protocol::Cancel&) {
                          protocol::CancelAck ack;
                          ack.was_running = job != nullptr && job->started;
                          if (job != nullptr) jobs_.erase(at);
                          ++counters_.cancelled;
                          link_->send(ack, header.job, header.attempt);
                        },
                        [&](protocol::Flow& m) {
                          if (job == nullptr) return;
                          job->paused = m.paused;
                          if (!m.paused && job->started) schedule(header.job, *job, clock_.now());
                        },
                        [](auto&) {}},
             message);
}

void ScriptedNode::prepare(const JobId& id, std::uint32_t attempt,
                           const protocol::Prepare& prepare) {
  if (jobs_.size() >= setup_.slots) {
    protocol::Refuse refuse;
    refuse.reason = protocol::RefuseReason::kBusy;
    refuse.error = {ErrorCode::kResourceExhausted, "all slots are taken"};
    link_->send(refuse, id, attempt);
    return;
  }
  Job& job = jobs_[id];
  job = {};
  job.attempt = attempt;
  job.max_tokens = static_cast<std::uint64_t>(setup_.script.tokens);
  std::size_t bytes = 0;
  if (const auto* object = prepare.job.if_object()) {
    if (const auto* limit = object->if_contains("max_tokens"))
      job.max_tokens = std::min(job.max_tokens, limit->to_number<std::uint64_t>());
    if (const auto* messages = object->if_contains("messages"))
      bytes = boost::json::serialize(*messages).size();
  }
  job.prompt_tokens = 1 + bytes / 4;
  protocol::Lease lease;
  lease.prompt_tokens = job.prompt_tokens;
  lease.prompt_digest = std::string(64, '0');
  lease.granted_tokens = job.prompt_tokens + job.max_tokens;
  link_->send(lease, id, attempt);
}

void ScriptedNode::begin(const JobId& id, Job& job, const protocol::Start& start) {
  ++counters_.jobs;
  job.started = true;
  if (start.max_tokens > 0) job.max_tokens = std::min(job.max_tokens, start.max_tokens);
  job.first = job.next = start.resume_ids.size();
  const std::uint64_t had = job.first * kWord.size();
  job.text_due = had > start.emitted.content ? had - start.emitted.content : 0;
  schedule(id, job, clock_.now() + std::chrono::milliseconds(setup_.script.first_ms));
}

void ScriptedNode::finish(const JobId& id, const Job& job) {
  protocol::Finish out;
  out.reason = protocol::WireFinishReason::kLength;
  out.num_ids = job.next - job.first;
  out.usage.prompt_tokens = static_cast<std::int64_t>(job.prompt_tokens);
  out.usage.completion_tokens = static_cast<std::int64_t>(job.next);
  link_->send(out, id, job.attempt);
  ++counters_.finished;
  jobs_.erase(id);
}

// The next frame of the job and, after the last one, its end.
void ScriptedNode::send_frame(const JobId& id, Job& job) {
  if (job.next < job.max_tokens) {
    const std::uint64_t n = std::min(job.max_tokens - job.next,
                                     static_cast<std::uint64_t>(setup_.script.tokens_per_frame));
    protocol::Tokens tokens;
    tokens.first_index = job.next;
    tokens.ids.assign(n, kToken);
    if (job.text_due > 0) {
      std::string text;
      while (text.size() < job.text_due) text.insert(0, kWord);
      tokens.deltas.push_back({.text = text.substr(text.size() - job.text_due)});
      job.text_due = 0;
    }
    for (std::uint64_t i = 0; i < n; ++i) tokens.deltas.push_back({.text = std::string(kWord)});
    job.next += n;
    counters_.tokens += static_cast<std::int64_t>(n);
    link_->send(tokens, id, job.attempt);
  }
  if (job.next >= job.max_tokens) finish(id, job);
}

void ScriptedNode::schedule(const JobId& id, Job& job, Clock::Instant due) {
  const bool on_timetable = setup_.script.interval_ms > 0 || due > clock_.now();
  if (!on_timetable) {
    if (!std::exchange(job.flowing, true)) flowing_.push_back(id);
    if (!std::exchange(flow_posted_, true))
      strand_.post([self = shared_from_this()] { self->flow(); });
    return;
  }
  job.due = due;
  timetable_.push_back(id);
  if (std::exchange(timer_set_, true)) return;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(due - clock_.now());
  timer_.after(std::max(wait, 0ms), [self = shared_from_this()] { self->on_timer(); });
}

// All delays of a node are alike but the first ones: entries that come late by that wait a little.
void ScriptedNode::on_timer() {
  timer_set_ = false;
  const Clock::Instant now = clock_.now();
  std::deque<JobId> later;
  std::deque<JobId> entries = std::exchange(timetable_, {});
  for (const JobId& id : entries) {
    const auto at = jobs_.find(id);
    if (at == jobs_.end() || at->second.paused) continue;
    if (at->second.due > now) {
      later.push_back(id);
      continue;
    }
    if (setup_.script.interval_ms == 0) {
      schedule(id, at->second, now);
      continue;
    }
    send_frame(id, at->second);
    if (const auto still = jobs_.find(id); still != jobs_.end()) {
      still->second.due = now + std::chrono::milliseconds(setup_.script.interval_ms);
      later.push_back(id);
    }
  }
  timetable_.insert(timetable_.end(), later.begin(), later.end());
  if (timetable_.empty()) return;
  Clock::Instant soonest = Clock::Instant::max();
  for (const JobId& id : timetable_)
    if (const auto at = jobs_.find(id); at != jobs_.end())
      soonest = std::min(soonest, at->second.due);
  timer_set_ = true;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(soonest - clock_.now());
  timer_.after(std::clamp(wait, std::chrono::milliseconds(1), std::chrono::milliseconds(1'000)),
               [self = shared_from_this()] { self->on_timer(); });
}

void ScriptedNode::flow() {
  flow_posted_ = false;
  if (!link_ || !link_->up()) return;
  for (int i = 0; i < kFramesPerTurn && !flowing_.empty(); ++i) {
    if (link_->queued_bytes() > kFullLink) break;
    const JobId id = flowing_.front();
    flowing_.pop_front();
    const auto at = jobs_.find(id);
    if (at == jobs_.end()) continue;
    at->second.flowing = false;
    if (at->second.paused) continue;
    send_frame(id, at->second);
    if (const auto still = jobs_.find(id); still != jobs_.end()) {
      still->second.flowing = true;
      flowing_.push_back(id);
    }
  }
  if (flowing_.empty()) return;
  flow_posted_ = true;
  if (link_->queued_bytes() > kFullLink) {
    flow_timer_.after(1ms, [self = shared_from_this()] { self->flow(); });
  } else {
    strand_.post([self = shared_from_this()] { self->flow(); });
  }
}

}  // namespace flotilla::bench
