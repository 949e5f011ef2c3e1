#include "flotilla/worker/remote_engine.h"

#include <algorithm>
#include <utility>

#include "flotilla/log/log.h"

namespace flotilla::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A worker answers at once whatever its steps do. One that does not has been stopped, or is about
// to end; callers with other models to look after do not wait for it.
constexpr milliseconds kStatsPatience{100}, kSilence{2'000};
constexpr milliseconds kSubmitPatience{2'000}, kPreparePatience{60'000};

}  // namespace

// What prepared jobs and their copies keep: known to the worker until the last of them goes.
struct RemoteEngine::Handle {
  std::shared_ptr<Link> link;
  std::uint64_t tag = 0;
  ~Handle() { link->channel.send(Kind::kForget, tag); }
};

RemoteEngine::RemoteEngine(RemoteProcess process, RemoteOptions options)
    : process_(std::move(process)),
      options_(std::move(options)),
      link_(std::make_shared<Link>(process_.fd)),
      next_tag_(options_.order.options.first_id) {}

Result<std::shared_ptr<RemoteEngine>> RemoteEngine::load(RemoteProcess process,
                                                         RemoteOptions options) {
  std::shared_ptr<RemoteEngine> engine(new RemoteEngine(std::move(process), std::move(options)));
  Channel& channel = engine->link_->channel;
  channel.send(Kind::kLoad, 0, packed(engine->options_.order));
  LoadAnswer answer;
  while (true) {
    auto frame = channel.receive();
    if (!frame) {
      return Error{ErrorCode::kUnavailable, "model '" + engine->options_.order.options.folder +
                                                "': its process ended while it loaded, " +
                                                engine->process_.wait()};
    }
    if (frame->kind == Kind::kProgress) {
      std::uint64_t done = 0, total = 0;
      if (unpack(frame->body, done, total) && engine->options_.progress) {
        engine->options_.progress(done, total);
      }
    } else if (frame->kind == Kind::kLoaded && unpack(frame->body, answer)) {
      break;
    } else {
      return Error{ErrorCode::kInternal, "the worker of '" + engine->options_.order.options.folder +
                                             "' says what is not understood"};
    }
  }
  if (answer.error) return *std::move(answer.error);
  engine->info_ = std::move(answer.info);
  engine->granted_ = answer.granted;
  engine->device_granted_ = answer.device_granted;
  engine->options_.progress = {};
  engine->stats_.healthy = true;
  engine->reader_ = std::thread([raw = engine.get()] { raw->read_loop(); });
  return engine;
}

RemoteEngine::~RemoteEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  link_->channel.finish_sending();
  const std::string how = process_.wait();  // its socket ends with it, and so does the reader
  if (reader_.joinable()) reader_.join();
  log::debug("worker_ended", {{"model", info_.model}, {"how", how}});
}

Error RemoteEngine::gone() const {
  return {ErrorCode::kUnavailable, "the process of model '" + info_.model + "' is gone"};
}

// Nothing: the process is gone, or takes longer than that.
RemoteEngine::Answer RemoteEngine::ask(Kind kind, std::uint64_t tag, std::string_view body,
                                       milliseconds patience) const {
  std::future<Answer> answer;
  {
    const std::lock_guard lock(mutex_);
    if (dead_) return std::nullopt;
    answer = asked_[tag].get_future();
  }
  link_->channel.send(kind, tag, body);
  if (answer.wait_for(patience) == std::future_status::ready) return answer.get();
  {
    const std::lock_guard lock(mutex_);
    if (asked_.erase(tag) > 0) return std::nullopt;
  }
  return answer.get();  // it comes just now
}

Result<std::shared_ptr<const engine::PreparedJob>> RemoteEngine::prepare(
    engine::ChatJob job) const {
  const std::uint64_t tag = next_tag_++;
  const auto reply = ask(Kind::kPrepare, tag, packed(job), kPreparePatience);
  if (!reply) return gone();
  PrepareAnswer answer;
  if (!unpack(*reply, answer)) return gone();
  if (answer.error) return *std::move(answer.error);
  auto prepared = std::make_shared<engine::PreparedJob>();
  prepared->job = std::move(job);
  prepared->prompt_ids = std::move(answer.prompt_ids);
  prepared->prompt_text = std::move(answer.prompt_text);
  prepared->prompt_tail = std::move(answer.prompt_tail);
  prepared->prompt_digest = std::move(answer.prompt_digest);
  auto handle = std::make_shared<Handle>();
  handle->link = link_;
  handle->tag = tag;
  prepared->kept = std::move(handle);
  return std::shared_ptr<const engine::PreparedJob>(std::move(prepared));
}

Result<RequestId> RemoteEngine::submit(std::shared_ptr<const engine::PreparedJob> job,
                                       engine::EventSink sink) {
  // What comes here was made by prepare() of this class, perhaps of another worker.
  const auto* handle = static_cast<const Handle*>(job->kept.get());
  if (handle == nullptr || handle->link != link_) return gone();
  const RequestId request{next_tag_++};
  {
    const std::lock_guard lock(mutex_);
    if (dead_) return gone();
    live_.emplace(request.value, std::make_shared<Live>(Live{.sink = std::move(sink)}));
  }
  const auto reply =
      ask(Kind::kSubmit, request.value, packed(handle->tag, job->job), kSubmitPatience);
  std::optional<Error> error;
  if (!reply || !unpack(*reply, error)) {
    error = gone();
    link_->channel.send(Kind::kCancel, request.value);  // should it be taken up yet
  }
  if (!error) return request;
  const std::lock_guard lock(mutex_);
  // Lost meanwhile, and told so: then it had been accepted as far as anybody knows.
  if (live_.erase(request.value) == 0) return request;
  return *std::move(error);
}

void RemoteEngine::cancel(RequestId request) { link_->channel.send(Kind::kCancel, request.value); }

void RemoteEngine::resume_output(RequestId request) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(request.value);
  if (found == live_.end()) return;
  ++found->second->num_resumes;
  link_->channel.send(Kind::kResume, request.value);  // in order with a pause: under the lock
}

StatsAnswer RemoteEngine::ask_stats() const {
  std::unique_lock lock(mutex_);
  if (dead_) return {};
  const auto now = steady_clock::now();
  if (!stats_asked_) {
    stats_asked_ = now;
    link_->channel.send(Kind::kStats, 0);
  }
  const auto asked = *stats_asked_;
  if (stats_came_.wait_until(lock, asked + kStatsPatience, [&] { return stats_asked_ != asked; })) {
    return dead_ ? StatsAnswer{} : stats_;
  }
  // As it was, but for the step that does not end.
  StatsAnswer answer = stats_;
  const auto silent = std::chrono::duration_cast<milliseconds>(now - asked);
  answer.stats.current_step = std::max(answer.stats.current_step, silent);
  answer.healthy = answer.healthy && silent < kSilence;
  return answer;
}

void RemoteEngine::take_stats(std::string_view body) {
  StatsAnswer answer;
  if (!unpack(body, answer)) return;
  const std::lock_guard lock(mutex_);
  stats_ = std::move(answer);
  stats_asked_.reset();
  stats_came_.notify_all();
}

engine::EngineStats RemoteEngine::stats() const { return ask_stats().stats; }
bool RemoteEngine::healthy() const { return ask_stats().healthy; }

std::string RemoteEngine::decode(std::span<const TokenId> ids) const {
  const auto reply = ask(Kind::kDecode, next_tag_++,
                         packed(std::vector<TokenId>(ids.begin(), ids.end())), kPreparePatience);
  std::string text;
  if (!reply || !unpack(*reply, text)) return {};
  return text;
}

void RemoteEngine::read_loop() {
  while (auto frame = link_->channel.receive()) {
    if (frame->kind == Kind::kEvent) {
      engine::TokenEvent event;
      if (!unpack(frame->body, event)) break;
      deliver(frame->tag, std::move(event));
    } else if (frame->kind == Kind::kAnswer && frame->tag == 0) {
      take_stats(frame->body);
    } else if (frame->kind == Kind::kAnswer) {
      std::promise<Answer> answered;
      {
        const std::lock_guard lock(mutex_);
        const auto found = asked_.find(frame->tag);
        if (found == asked_.end()) continue;
        answered = std::move(found->second);
        asked_.erase(found);
      }
      answered.set_value(std::move(frame->body));
    } else if (frame->kind == Kind::kLost) {
      device_lost_ = true;
    }
  }
  lose();
}

void RemoteEngine::deliver(std::uint64_t tag, engine::TokenEvent event) {
  std::shared_ptr<Live> live;
  std::uint64_t resumes = 0;
  const bool last = event.finish.has_value();
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(tag);
    if (found == live_.end()) return;
    live = found->second;
    resumes = live->num_resumes;
    if (last) live_.erase(found);
  }
  event.request = RequestId{tag};
  bool more = true;
  try {
    more = live->sink(std::move(event));
  } catch (const std::exception& error) {
    log::error("event_sink_failed", {{"request", tag}, {"what", error.what()}});
    link_->channel.send(Kind::kCancel, tag);
  }
  if (more || last) return;
  const std::lock_guard lock(mutex_);
  if (live->num_resumes == resumes) link_->channel.send(Kind::kPause, tag);
}

void RemoteEngine::lose() {
  std::unordered_map<std::uint64_t, std::promise<Answer>> asked;
  std::unordered_map<std::uint64_t, std::shared_ptr<Live>> live;
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    dead_ = true;
    stopping = stopping_;
    asked.swap(asked_);
    live.swap(live_);
    stats_asked_.reset();
    stats_came_.notify_all();
  }
  for (auto& [tag, promise] : asked) promise.set_value(std::nullopt);
  const Error error{ErrorCode::kModelFault,
                    (device_lost_ ? "the device of model '" : "the process of model '") +
                        info_.model + "' has failed"};
  for (auto& [tag, one] : live) {
    engine::TokenEvent event;
    event.request = RequestId{tag};
    event.finish = engine::Finish{.reason = engine::FinishReason::kError, .error = error};
    try {
      one->sink(std::move(event));
    } catch (const std::exception& gone) {
      log::error("event_sink_failed", {{"request", tag}, {"what", gone.what()}});
    }
  }
  if (stopping) return;
  // The system takes its time to clear away what a dead process had; requests did not wait for it.
  log::error("worker_lost",
             {{"model", info_.model}, {"device_lost", device_lost_}, {"ended", process_.wait()}});
  if (options_.on_lost) options_.on_lost();
}

}  // namespace flotilla::worker
