#include "flotilla/provider/agent.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <utility>

#include "flotilla/base/overloaded.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/provider/hardware.h"
#include "flotilla/provider/worker_pool.h"

namespace flotilla::provider {

using namespace std::chrono_literals;

namespace {

// Beyond the first the node stops producing, below the second it goes on.
constexpr std::size_t kLinkFullBytes = 4u << 20;
constexpr std::size_t kLinkFreeBytes = 1u << 20;
constexpr auto kLinkPoll = 10ms;
// Changes of load are told at most this often, besides the regular heartbeats.
constexpr auto kLoadNews = 500ms;
// The coordinator looks for another node when a second goes by without a frame.
constexpr auto kProgressInterval = 250ms;

// Faults that dialling again does not mend.
bool is_final(const Error& error) {
  using protocol::LinkFault;
  const auto fault = protocol::link_fault(error);
  return fault &&
         (*fault == LinkFault::kUninvitedNode || *fault == LinkFault::kRevokedNode ||
          *fault == LinkFault::kWrongNodeKey || *fault == LinkFault::kBadInvite ||
          *fault == LinkFault::kWrongCoordinatorKey || *fault == LinkFault::kVersionMismatch);
}

protocol::ModelState wire_state(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded:
      return protocol::ModelState::kUnloaded;
    case ModelState::kLoading:
      return protocol::ModelState::kLoading;
    case ModelState::kLoaded:
      return protocol::ModelState::kLoaded;
    case ModelState::kFailed:
      break;
  }
  return protocol::ModelState::kFailed;
}

}  // namespace

// Everything on `strand` unless said otherwise.
struct Agent::Impl : std::enable_shared_from_this<Agent::Impl> {
  Impl(net::IoRuntime& runtime, ModelManager& m, const Clock& c, AgentOptions o)
      : io(runtime),
        strand(runtime),
        models(m),
        clock(c),
        options(std::move(o)),
        workers(std::make_unique<WorkerPool>(options.prepare_threads, options.max_preparing)),
        started(c.now()),
        link_timer(strand),
        news_timer(strand),
        progress_timer(strand),
        drain_timer(strand) {}

  void start();
  void stop();
  void on_message(const protocol::FrameHeader& header, protocol::CoordinatorMessage message);
  void send(protocol::ProviderMessage message, const AttemptKey& key);
  void watch_link();
  void load_changed();
  void show_progress();
  void drain(std::chrono::milliseconds deadline, std::function<void(bool)> done);
  void end_drain(bool all_ended);
  void load(const std::string& model);
  void unload(const std::string& model);
  void send_status(const std::string& model, ModelState state, const std::optional<Error>& error);
  protocol::Register make_register() const;
  protocol::Heartbeat make_heartbeat() const;

  net::IoRuntime& io;
  const net::Strand strand;
  ModelManager& models;
  const Clock& clock;
  const AgentOptions options;
  std::unique_ptr<WorkerPool> workers;
  const Clock::Instant started;
  net::Timer link_timer, news_timer, progress_timer, drain_timer;
  std::shared_ptr<CoordinatorLink> link;
  std::shared_ptr<JobRunner> jobs;
  std::function<void(bool)> drained;
  bool stopped = false;
  bool draining = false;            // our own wish; survives a reconnect
  bool coordinator_drains = false;  // until the connection ends
  bool news_due = false;
  bool watching_link = false;
  std::uint64_t received_seen = 0;
  std::atomic<bool> connected{false};    // for other threads
  std::atomic<std::size_t> num_jobs{0};  // for other threads
};

void Agent::Impl::start() {
  if (stopped || link) return;
  const std::weak_ptr<Impl> weak = weak_from_this();
  // The pieces call back only on the strand and are let go there by stop(), so plain references to
  // us are safe in them.
  jobs = std::make_shared<JobRunner>(
      strand, models, *workers, clock, options.jobs,
      [this](protocol::ProviderMessage message, const AttemptKey& key) {
        send(std::move(message), key);
      },
      [this] { load_changed(); });
  LinkEvents events;
  events.make_register = [this] { return make_register(); };
  events.make_heartbeat = [this] { return make_heartbeat(); };
  events.on_up = [this](const protocol::Registered&) {
    connected = true;
    show_progress();
    if (options.on_registered) options.on_registered();
  };
  events.on_message = [this](const protocol::FrameHeader& header,
                             protocol::CoordinatorMessage message) {
    on_message(header, std::move(message));
  };
  events.on_down = [this](const std::string&) {
    connected = false;
    coordinator_drains = false;
    progress_timer.cancel();
    jobs->set_draining(draining);
    // The coordinator starts them again elsewhere; here nobody would read them.
    jobs->drop_all();
  };
  events.on_failed = [this](const Error& error, bool was_registered) {
    if (!was_registered && is_final(error) && options.on_rejected) options.on_rejected(error);
  };
  models.on_change([weak](const ModelRecord& record) {
    const auto self = weak.lock();
    if (!self) return;
    self->strand.post([weak, name = record.name, state = record.state, error = record.error] {
      const auto here = weak.lock();
      if (!here || here->stopped) return;
      here->send_status(name, state, error);
      here->link->send_register();
    });
  });
  link = std::make_shared<CoordinatorLink>(io, strand, clock, options.link, std::move(events));
  link->start();
}

void Agent::Impl::stop() {
  if (std::exchange(stopped, true)) return;
  if (jobs) jobs->drop_all();
  if (link) link->stop("the node stops");
  link_timer.cancel();
  news_timer.cancel();
  progress_timer.cancel();
  drain_timer.cancel();
  if (drained) std::exchange(drained, nullptr)(false);
  connected = false;
}

void Agent::Impl::send(protocol::ProviderMessage message, const AttemptKey& key) {
  link->send(message, key.job, key.attempt);
  if (!watching_link && link->queued_bytes() > kLinkFullBytes) {
    watching_link = true;
    jobs->set_link_full(true);
    watch_link();
  }
}

void Agent::Impl::watch_link() {
  link_timer.after(kLinkPoll, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->stopped) return;
    if (self->link->queued_bytes() > kLinkFreeBytes) return self->watch_link();
    self->watching_link = false;
    self->jobs->set_link_full(false);
  });
}

void Agent::Impl::on_message(const protocol::FrameHeader& header,
                             protocol::CoordinatorMessage message) {
  const AttemptKey key{header.job, header.attempt};
  std::visit(Overloaded{
                 [&](protocol::Prepare& m) { jobs->on_prepare(key, std::move(m)); },
                 [&](protocol::Start& m) { jobs->on_start(key, std::move(m)); },
                 [&](protocol::Cancel&) { jobs->on_cancel(key); },
                 [&](protocol::Flow& m) { jobs->on_flow(key, m.paused); },
                 [&](protocol::Recall& m) { jobs->on_recall(m); },
                 [&](protocol::Load& m) { load(m.model); },
                 [&](protocol::Unload& m) { unload(m.model); },
                 [&](protocol::Drain& m) {
                   log::info("coordinator_drains", {{"reason", m.reason}});
                   coordinator_drains = true;
                   jobs->set_draining(true);
                   link->send_heartbeat();
                 },
                 // The link keeps these to itself.
                 [&](protocol::Registered&) {},
                 [&](protocol::HeartbeatAck&) {},
                 [&](protocol::Reject&) {},
             },
             message);
}

void Agent::Impl::load_changed() {
  num_jobs = jobs ? jobs->num_jobs() : 0;
  if (draining && drained && num_jobs == 0) end_drain(true);
  if (std::exchange(news_due, true)) return;
  news_timer.after(kLoadNews, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->stopped) return;
    self->news_due = false;
    self->link->send_heartbeat();
  });
}

void Agent::Impl::show_progress() {
  progress_timer.after(kProgressInterval, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->stopped || !self->link->up()) return;
    // A long prompt that is still arriving is no job yet, and the coordinator waits for it.
    const std::uint64_t received = self->link->received_bytes();
    if (self->jobs->num_jobs() > 0 || received != self->received_seen) {
      self->link->send(protocol::Progress{self->jobs->stuck_models()});
    }
    self->received_seen = received;
    self->show_progress();
  });
}

void Agent::Impl::drain(std::chrono::milliseconds deadline, std::function<void(bool)> done) {
  if (stopped || !jobs) return done(true);
  draining = true;
  drained = std::move(done);
  jobs->set_draining(true);
  link->send(protocol::Drain{.deadline_ms = static_cast<std::uint32_t>(deadline.count()),
                             .reason = "shutdown"});
  if (jobs->num_jobs() == 0) return end_drain(true);
  drain_timer.after(deadline, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->end_drain(false);
  });
}

void Agent::Impl::end_drain(bool all_ended) {
  drain_timer.cancel();
  if (drained) std::exchange(drained, nullptr)(all_ended);
}

void Agent::Impl::send_status(const std::string& model, ModelState state,
                              const std::optional<Error>& error) {
  protocol::ModelStatus status;
  status.model = model;
  status.state = wire_state(state);
  if (error) status.error = protocol::to_wire(*error);
  link->send(status);
}

void Agent::Impl::load(const std::string& model) {
  for (const ModelRecord& record : models.list()) {
    if (record.name == model && record.state == ModelState::kLoaded)
      return send_status(model, record.state, {});
  }
  // Progress and outcome arrive through on_change; only a refusal has none.
  models.load(model, [weak = weak_from_this(), model](Status outcome) {
    const auto self = weak.lock();
    if (!self || outcome.ok()) return;
    self->strand.post([weak, model, error = outcome.error()] {
      const auto here = weak.lock();
      if (here && !here->stopped) here->send_status(model, ModelState::kFailed, error);
    });
  });
}

void Agent::Impl::unload(const std::string& model) {
  const Status outcome = models.unload(model);
  if (!outcome.ok()) send_status(model, ModelState::kFailed, outcome.error());
}

protocol::Register Agent::Impl::make_register() const {
  protocol::Register message;
  message.software = options.software;
  message.answers_recall = true;
  message.progress_interval_ms = static_cast<std::uint32_t>(kProgressInterval.count());
  message.hardware = probe_hardware(options.num_threads);
  message.hardware.accelerator = options.accelerator.substr(0, protocol::kMaxName);
  if (options.memory) message.hardware.memory_cap_bytes = options.memory->cap_bytes();
  for (const ModelRecord& record : models.list()) {
    if (message.models.size() == protocol::kMaxModels) break;
    protocol::ModelOffer offer;
    offer.id = record.name;
    offer.created = record.since;
    offer.loaded = record.engine != nullptr;
    offer.resident_bytes = record.resident_bytes;
    if (record.engine) {
      const engine::EngineInfo& info = record.engine->info();
      offer.family = info.family;
      offer.model_digest = info.model_digest;
      offer.numerics_id = info.numerics_id;
      offer.context_length = info.context_length;
      offer.max_concurrent =
          static_cast<std::uint32_t>(std::max<std::int64_t>(1, info.max_concurrent));
      offer.resident_bytes = info.resident_bytes;
      offer.state_fixed_bytes = info.state_cost.fixed_bytes;
      for (const state::StateCostClass& c : info.state_cost.classes) {
        offer.state_classes.push_back(
            {.bytes_per_token = c.bytes_per_token, .max_tokens = c.max_tokens});
      }
    }
    message.models.push_back(std::move(offer));
  }
  return message;
}

protocol::Heartbeat Agent::Impl::make_heartbeat() const {
  protocol::Heartbeat message;
  message.uptime_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(clock.now() - started).count());
  message.free_bytes = available_memory_bytes();
  if (options.memory) {
    const std::uint64_t left = options.memory->free_bytes();
    message.free_bytes = options.accelerator.empty() ? std::min(message.free_bytes, left) : left;
  }
  message.draining = draining || coordinator_drains;
  message.slots = jobs->loads();
  return message;
}

Agent::Agent(net::IoRuntime& io, ModelManager& models, const Clock& clock, AgentOptions options)
    : impl_(std::make_shared<Impl>(io, models, clock, std::move(options))) {}

Agent::~Agent() {
  impl_->models.on_change(nullptr);
  std::promise<void> stopped;
  impl_->strand.post([&] {
    impl_->stop();
    stopped.set_value();
  });
  stopped.get_future().wait();
  impl_->workers.reset();  // joins: tasks in it use the models
}

void Agent::start() {
  impl_->strand.post([impl = impl_] { impl->start(); });
}

void Agent::drain(std::chrono::milliseconds deadline, std::function<void(bool)> done) {
  impl_->strand.post([impl = impl_, deadline, done = std::move(done)]() mutable {
    impl->drain(deadline, std::move(done));
  });
}

bool Agent::connected() const { return impl_->connected; }
std::size_t Agent::num_jobs() const { return impl_->num_jobs; }

}  // namespace flotilla::provider
