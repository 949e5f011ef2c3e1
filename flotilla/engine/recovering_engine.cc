#include "flotilla/engine/recovering_engine.h"

#include <algorithm>
#include <utility>

#include "flotilla/log/log.h"

namespace flotilla::engine {
namespace {

constexpr int kAttemptShift = 40;  // ids of an engine; more than it can hand out
constexpr std::chrono::milliseconds kLetGoPoll{5};

}  // namespace

Result<std::shared_ptr<TextEngine>> RecoveringEngine::make(Load load, Policy policy) {
  std::shared_ptr<RecoveringEngine> made(new RecoveringEngine(std::move(load), policy));
  FLOTILLA_TRY(made->engine_, made->attempt());
  made->info_ = made->engine_->info();
  made->thread_ = std::thread([engine = made.get()] { engine->watch(); });
  return std::shared_ptr<TextEngine>(std::move(made));
}

RecoveringEngine::~RecoveringEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  engine_.reset();  // its thread may still call on_lost
}

Result<std::shared_ptr<TextEngine>> RecoveringEngine::attempt() {
  const std::uint64_t number = num_attempts_++;
  return load_({.first_id = (number << kAttemptShift) + 1, .on_lost = [this] {
                  {
                    const std::lock_guard lock(mutex_);
                    lost_ = true;
                  }
                  wake_.notify_all();
                }});
}

void RecoveringEngine::watch() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return lost_ || stopping_; });
    if (stopping_) return;
    lost_ = false;
    lock.unlock();
    if (let_go()) recover();
    lock.lock();
  }
}

// The engine is gone when the last caller has left it; only then is its device free.
bool RecoveringEngine::let_go() {
  std::weak_ptr<TextEngine> gone;
  {
    const std::unique_lock lock(engine_mutex_);
    gone = engine_;
    engine_.reset();
  }
  std::unique_lock lock(mutex_);
  while (!gone.expired()) {
    if (wake_.wait_for(lock, kLetGoPoll, [this] { return stopping_; })) return false;
  }
  return true;
}

void RecoveringEngine::recover() {
  const auto begin = std::chrono::steady_clock::now();
  auto pause = policy_.first_pause;
  while (true) {
    log::warn("engine_reloading", {{"model", info_.model}});
    auto loaded = attempt();
    if (loaded.ok() && (*loaded)->info().model_digest != info_.model_digest) {
      loaded = Error{ErrorCode::kModelFault, "its files have changed since it was loaded first"};
    }
    if (loaded.ok()) {
      const std::unique_lock lock(engine_mutex_);
      engine_ = std::move(loaded).value();
      break;
    }
    log::error(
        "engine_not_reloaded",
        {{"model", info_.model}, {"what", loaded.error().message}, {"again_in_ms", pause.count()}});
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, pause, [this] { return stopping_; })) return;
    pause = std::min(pause * 2, policy_.longest_pause);
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  log::info("engine_reloaded", {{"model", info_.model}, {"ms", took.count()}});
}

std::shared_ptr<TextEngine> RecoveringEngine::current() const {
  const std::shared_lock lock(engine_mutex_);
  return engine_;
}

Error RecoveringEngine::absent() const {
  return {ErrorCode::kUnavailable,
          "model '" + info_.model + "' is being loaded again: its device has failed"};
}

Result<std::shared_ptr<const PreparedJob>> RecoveringEngine::prepare(ChatJob job) const {
  const auto engine = current();
  if (engine == nullptr) return absent();
  return engine->prepare(std::move(job));
}

Result<RequestId> RecoveringEngine::submit(std::shared_ptr<const PreparedJob> job, EventSink sink) {
  const auto engine = current();
  if (engine == nullptr) return absent();
  return engine->submit(std::move(job), std::move(sink));
}

void RecoveringEngine::cancel(RequestId request) {
  if (const auto engine = current()) engine->cancel(request);
}

void RecoveringEngine::resume_output(RequestId request) {
  if (const auto engine = current()) engine->resume_output(request);
}

EngineStats RecoveringEngine::stats() const {
  const auto engine = current();
  return engine == nullptr ? EngineStats{} : engine->stats();
}

bool RecoveringEngine::healthy() const {
  const auto engine = current();
  return engine != nullptr && engine->healthy();
}

std::string RecoveringEngine::decode(std::span<const TokenId> ids) const {
  const auto engine = current();
  return engine == nullptr ? std::string() : engine->decode(ids);
}

}  // namespace flotilla::engine
