#include "flotilla/provider/local_stream.h"

#include <utility>

#include "flotilla/protocol/identity.h"

namespace flotilla::provider {

LocalRun::LocalRun(api::ChatRequest request, std::string tenant, OnEvent on_event)
    : request_(std::move(request)), tenant_(std::move(tenant)), on_event_(std::move(on_event)) {
  for (int i = 0; i < request_.n; ++i) choices_.emplace_back(protocol::random_job_id());
}

void LocalRun::prepare_and_submit(std::shared_ptr<engine::TextEngine> engine) {
  {
    std::lock_guard lock(mutex_);
    if (!on_event_) return;
    engine_ = engine;
  }
  auto job = to_chat_job(request_, engine->info(), 0, tenant_);
  if (!job.ok()) return fail(job.error());
  auto prepared = engine->prepare(std::move(*job));
  if (!prepared.ok()) return fail(prepared.error());
  if ((*prepared)->job.count_only) return finish_counted(**prepared);
  {
    std::lock_guard lock(mutex_);
    prompt_tokens_ = static_cast<std::int64_t>((*prepared)->prompt_ids.size());
  }
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    std::shared_ptr<const engine::PreparedJob> mine = *prepared;
    if (i > 0) {
      // The prompt is the same for all choices; only the generator's key differs.
      auto copy = std::make_shared<engine::PreparedJob>(**prepared);
      copy->job.sampling.choice = static_cast<std::uint32_t>(i);
      mine = std::move(copy);
    }
    // Submitted outside the lock: the engine's thread may be inside a sink of ours, waiting for it.
    const auto id =
        engine->submit(std::move(mine), [self = shared_from_this(), i](engine::TokenEvent event) {
          return self->on_token_event(i, std::move(event));
        });
    std::unique_lock lock(mutex_);
    if (!id.ok()) {
      fail_locked(i, id.error());
      continue;
    }
    choices_[i].request = *id;
    choices_[i].submitted = true;
    if (!on_event_) {
      // Cancelled in between: this choice was not known yet.
      lock.unlock();
      engine->cancel(*id);
      return;
    }
  }
}

bool LocalRun::on_token_event(std::size_t index, engine::TokenEvent event) {
  std::lock_guard lock(mutex_);
  Choice& choice = choices_[index];
  if (!on_event_ || choice.finished) return true;
  choice.request = event.request;  // the first event may come before submit() has returned
  choice.any_calls = choice.any_calls || has_calls(event);
  choice.finished = event.finish.has_value();
  serving::ChatEvent out =
      to_chat_event(std::move(event), static_cast<int>(index), choice.call_ids, choice.any_calls);
  out.prompt_tokens = prompt_tokens_;
  const bool room = on_event_(std::move(out));
  choice.paused = !room && !choice.finished;
  return room || choice.finished;
}

void LocalRun::finish_counted(const engine::PreparedJob& prepared) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    if (!on_event_ || std::exchange(choices_[i].finished, true)) continue;
    serving::ChatEvent event;
    event.choice = static_cast<int>(i);
    event.finish = to_chat_finish(counted(prepared), false);
    on_event_(std::move(event));
  }
}

void LocalRun::fail_locked(std::size_t index, const Error& error) {
  Choice& choice = choices_[index];
  if (!on_event_ || std::exchange(choice.finished, true)) return;
  serving::ChatEvent event;
  event.choice = static_cast<int>(index);
  event.finish = serving::ChatFinish{
      .reason = serving::ChatFinish::Reason::kError, .error = error, .usage = {}};
  on_event_(std::move(event));
}

void LocalRun::fail(const Error& error) {
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < choices_.size(); ++i) fail_locked(i, error);
}

void LocalRun::cancel() {
  std::vector<RequestId> running;
  std::shared_ptr<engine::TextEngine> engine;
  OnEvent dropped;  // destroyed outside the lock
  {
    std::lock_guard lock(mutex_);
    dropped.swap(on_event_);
    if (!dropped) return;
    engine = engine_;
    for (const Choice& choice : choices_) {
      if (choice.submitted && !choice.finished) running.push_back(choice.request);
    }
  }
  for (const RequestId id : running) engine->cancel(id);
}

void LocalRun::resume() {
  std::vector<RequestId> paused;
  std::shared_ptr<engine::TextEngine> engine;
  {
    // Waits for a callback that is still returning, so its "false" is seen here.
    std::lock_guard lock(mutex_);
    engine = engine_;
    for (Choice& choice : choices_) {
      if (std::exchange(choice.paused, false)) paused.push_back(choice.request);
    }
  }
  // The engine takes this as a command of its own thread: it cannot overtake the sink's return
  // there.
  for (const RequestId id : paused) engine->resume_output(id);
}

}  // namespace flotilla::provider
