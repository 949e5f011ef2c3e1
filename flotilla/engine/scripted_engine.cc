#include "flotilla/engine/scripted_engine.h"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "flotilla/engine/digest.h"
#include "flotilla/engine/scripted_generation.h"
#include "flotilla/engine/scripted_prompt.h"
#include "flotilla/log/log.h"

namespace flotilla::engine {

struct ScriptedEngine::Impl {
  using Instant = ScriptedGeneration::Instant;
  using GenerationPtr = std::unique_ptr<ScriptedGeneration>;

  Impl(std::shared_ptr<const Script> the_script, std::string model);

  const ScriptRule* find_rule(const PreparedJob& job, bool use_up);
  void run();
  void drain();
  void start_waiting();
  void after_event(RequestId id);
  void end_all();

  const std::shared_ptr<const Script> script;
  EngineInfo info;
  std::unordered_map<TokenId, std::string> token_texts;  // of the script's own tokens

  mutable std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;                 // guarded by mutex
  std::vector<GenerationPtr> submitted;  // guarded by mutex
  std::set<RequestId> live;              // guarded by mutex
  std::set<RequestId> cancelled;         // guarded by mutex; a subset of live
  std::set<RequestId> resumed;           // guarded by mutex; a subset of live
  std::uint64_t last_id = 0;             // guarded by mutex
  std::vector<std::int64_t> uses;        // guarded by mutex; per rule
  EngineStats stats;                     // guarded by mutex

  // Of the thread alone.
  std::map<RequestId, GenerationPtr> running;
  std::deque<GenerationPtr> waiting;
  std::set<std::pair<Instant, RequestId>> timers;
  std::map<RequestId, Instant> timer_of;
  std::thread thread;
};

ScriptedEngine::Impl::Impl(std::shared_ptr<const Script> the_script, std::string model)
    : script(std::move(the_script)), uses(script->rules.size(), 0) {
  info.model = std::move(model);
  info.family = "scripted";
  info.model_digest = script->digest;
  info.numerics_id = digest_of_text("flotilla scripted engine 1");
  info.context_length = script->context_length;
  info.max_concurrent = script->max_concurrent;
  info.template_source = "scripted";
  for (const ScriptRule& rule : script->rules) {
    for (const ScriptStep& step : rule.steps) {
      const bool token =
          step.kind == ScriptStep::Kind::kToken || step.kind == ScriptStep::Kind::kEnd;
      if (token) {
        token_texts.emplace(step.id.value_or(scripted_token_id(step.bytes, step.special)),
                            step.bytes);
      }
    }
  }
}

// The first rule that matches; counts the use of rules with a limit when `use_up`.
const ScriptRule* ScriptedEngine::Impl::find_rule(const PreparedJob& job, bool use_up) {
  const std::string user = last_user_text(job.job);
  std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < script->rules.size(); ++i) {
    const ScriptRule& rule = script->rules[i];
    if (rule.model && *rule.model != info.model) continue;
    if (rule.user && user.find(*rule.user) == std::string::npos) continue;
    if (rule.prompt && job.prompt_text.find(*rule.prompt) == std::string::npos) continue;
    if (rule.choice && *rule.choice != static_cast<std::int64_t>(job.job.sampling.choice)) continue;
    if (rule.times && uses[i] >= *rule.times) continue;
    if (use_up) ++uses[i];
    return &rule;
  }
  return nullptr;
}

void ScriptedEngine::Impl::run() {
  while (true) {
    {
      std::unique_lock lock(mutex);
      const auto work = [this] {
        return stopping || !submitted.empty() || !cancelled.empty() || !resumed.empty();
      };
      if (timers.empty()) {
        wake.wait(lock, work);
      } else {
        wake.wait_until(lock, timers.begin()->first, work);
      }
      if (stopping) break;
    }
    drain();
    start_waiting();
    // One step for everything that is due now: no request is served twice before another.
    const Instant now = std::chrono::steady_clock::now();
    std::vector<RequestId> due;
    for (auto it = timers.begin(); it != timers.end() && it->first <= now; ++it) {
      due.push_back(it->second);
    }
    for (const RequestId id : due) {
      running.at(id)->step(now);
      after_event(id);
    }
    start_waiting();  // into the places that just became free
  }
  end_all();
}

void ScriptedEngine::Impl::drain() {
  std::vector<GenerationPtr> fresh;
  std::set<RequestId> to_cancel;
  std::set<RequestId> to_resume;
  {
    std::lock_guard lock(mutex);
    fresh.swap(submitted);
    to_cancel.swap(cancelled);
    to_resume.swap(resumed);
  }
  for (GenerationPtr& generation : fresh) waiting.push_back(std::move(generation));
  const Instant now = std::chrono::steady_clock::now();
  for (const RequestId id : to_resume) {
    if (const auto it = running.find(id); it != running.end()) {
      it->second->resume(now);
      after_event(id);
    }
  }
  for (const RequestId id : to_cancel) {
    const auto queued = std::find_if(waiting.begin(), waiting.end(),
                                     [id](const GenerationPtr& g) { return g->id() == id; });
    if (queued != waiting.end()) {
      running.emplace(id, std::move(*queued));
      waiting.erase(queued);
    }
    if (const auto it = running.find(id); it != running.end()) {
      it->second->finish(FinishReason::kCancelled);
      after_event(id);
    }
  }
}

void ScriptedEngine::Impl::start_waiting() {
  while (!waiting.empty() && running.size() < static_cast<std::size_t>(info.max_concurrent)) {
    GenerationPtr generation = std::move(waiting.front());
    waiting.pop_front();
    const RequestId id = generation->id();
    ScriptedGeneration& started = *running.emplace(id, std::move(generation)).first->second;
    started.start(std::chrono::steady_clock::now());
    after_event(id);
  }
  std::lock_guard lock(mutex);
  stats.num_running = static_cast<std::uint32_t>(running.size());
  stats.num_waiting = static_cast<std::uint32_t>(waiting.size() + submitted.size());
}

// Brings timers and bookkeeping in line after `id` may have moved.
void ScriptedEngine::Impl::after_event(RequestId id) {
  if (const auto timer = timer_of.find(id); timer != timer_of.end()) {
    timers.erase({timer->second, id});
    timer_of.erase(timer);
  }
  ScriptedGeneration& generation = *running.at(id);
  if (!generation.finished()) {
    if (const auto due = generation.due()) {
      timers.emplace(*due, id);
      timer_of.emplace(id, *due);
    }
    return;
  }
  const Usage usage = generation.usage();
  running.erase(id);
  std::lock_guard lock(mutex);
  live.erase(id);
  cancelled.erase(id);
  resumed.erase(id);
  stats.num_running = static_cast<std::uint32_t>(running.size());
  stats.prompt_tokens_total += static_cast<std::uint64_t>(usage.prompt_tokens);
  stats.completion_tokens_total += static_cast<std::uint64_t>(usage.completion_tokens);
}

void ScriptedEngine::Impl::end_all() {
  const Error error{ErrorCode::kUnavailable, "the engine of model '" + info.model + "' stops"};
  std::vector<GenerationPtr> fresh;
  {
    std::lock_guard lock(mutex);
    fresh.swap(submitted);
  }
  for (GenerationPtr& generation : fresh) waiting.push_back(std::move(generation));
  for (auto& [id, generation] : running) generation->finish(FinishReason::kError, error);
  for (GenerationPtr& generation : waiting) generation->finish(FinishReason::kError, error);
}

ScriptedEngine::ScriptedEngine(std::shared_ptr<const Script> script, std::string model)
    : impl_(std::make_unique<Impl>(std::move(script), std::move(model))) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

ScriptedEngine::~ScriptedEngine() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_all();
  impl_->thread.join();
}

const EngineInfo& ScriptedEngine::info() const { return impl_->info; }

Result<std::shared_ptr<const PreparedJob>> ScriptedEngine::prepare(ChatJob job) const {
  auto prepared = std::make_shared<PreparedJob>();
  prepared->prompt_text = scripted_prompt_text(job);
  prepared->prompt_ids = scripted_prompt_ids(job);
  prepared->prompt_digest = digest_of_ids(prepared->prompt_ids);
  prepared->job = std::move(job);
  const auto tokens = static_cast<std::int64_t>(prepared->prompt_ids.size());
  if (tokens >= impl_->info.context_length && !prepared->job.count_only) {
    return Error{ErrorCode::kContextLength,
                 "prompt of " + std::to_string(tokens) + " tokens exceeds the context of " +
                     std::to_string(impl_->info.context_length) +
                     " (one token must be left for the answer)",
                 prepared->job.is_completion ? "prompt" : "messages"};
  }
  const ScriptRule* rule = impl_->find_rule(*prepared, false);
  if (rule != nullptr && rule->refuse) {
    impl_->find_rule(*prepared, true);
    return *rule->refuse;
  }
  return std::shared_ptr<const PreparedJob>(std::move(prepared));
}

Result<RequestId> ScriptedEngine::submit(std::shared_ptr<const PreparedJob> job, EventSink sink) {
  const ScriptRule* rule = impl_->find_rule(*job, true);
  if (rule == nullptr) {
    return Error{ErrorCode::kNotFound, "no rule of the script matches this request"};
  }
  RequestId id;
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->stopping) return Error{ErrorCode::kUnavailable, "the engine stops"};
    const auto limit =
        static_cast<std::size_t>(impl_->script->max_concurrent + impl_->script->max_waiting);
    if (impl_->live.size() >= limit) {
      return Error{ErrorCode::kResourceExhausted, "the queue of model '" + impl_->info.model +
                                                      "' is full (" + std::to_string(limit) +
                                                      " requests)"};
    }
    id.value = ++impl_->last_id;
    impl_->submitted.push_back(std::make_unique<ScriptedGeneration>(
        id, std::move(job), std::move(sink), *impl_->script, *rule));
    impl_->live.insert(id);
  }
  impl_->wake.notify_all();
  return id;
}

void ScriptedEngine::cancel(RequestId request) {
  {
    std::lock_guard lock(impl_->mutex);
    if (!impl_->live.contains(request)) return;
    impl_->cancelled.insert(request);
  }
  impl_->wake.notify_all();
}

void ScriptedEngine::resume_output(RequestId request) {
  {
    std::lock_guard lock(impl_->mutex);
    if (!impl_->live.contains(request)) return;
    impl_->resumed.insert(request);
  }
  impl_->wake.notify_all();
}

EngineStats ScriptedEngine::stats() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

bool ScriptedEngine::healthy() const { return true; }

std::string ScriptedEngine::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    if (const auto it = impl_->token_texts.find(id); it != impl_->token_texts.end()) {
      text += it->second;
    }
  }
  return text;
}

Result<std::vector<std::shared_ptr<TextEngine>>> load_scripted_engines(const std::string& path) {
  FLOTILLA_TRY(Script script, load_script(path));
  const auto shared = std::make_shared<const Script>(std::move(script));
  std::vector<std::shared_ptr<TextEngine>> engines;
  for (const std::string& model : shared->models) {
    engines.push_back(std::make_shared<ScriptedEngine>(shared, model));
  }
  return engines;
}

Result<std::shared_ptr<TextEngine>> make_scripted_engine(std::string_view script_text) {
  FLOTILLA_TRY(Script script, parse_script(script_text));
  auto shared = std::make_shared<const Script>(std::move(script));
  std::string model = shared->models.front();
  return std::shared_ptr<TextEngine>(
      std::make_shared<ScriptedEngine>(std::move(shared), std::move(model)));
}

}  // namespace flotilla::engine
