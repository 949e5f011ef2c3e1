#include "flotilla/provider/model_manager.h"

#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "flotilla/base/text.h"
#include "flotilla/log/log.h"

namespace flotilla::provider {

std::string_view to_string(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded:
      return "unloaded";
    case ModelState::kLoading:
      return "loading";
    case ModelState::kLoaded:
      return "loaded";
    case ModelState::kFailed:
      return "failed";
  }
  return "?";
}

struct ModelManager::Graveyard {
  Graveyard() : thread([this] { run(); }) {}
  ~Graveyard() { thread.join(); }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return !dead.empty() || (closed && num_alive == 0); });
      if (dead.empty()) return;
      std::shared_ptr<engine::TextEngine> engine = std::move(dead.front());
      dead.pop_front();
      lock.unlock();
      engine.reset();
      lock.lock();
      --num_alive;
    }
  }
  void born() {
    std::lock_guard lock(mutex);
    ++num_alive;
  }
  // Notifies under the lock: the last burial may let the destructor run at once.
  void bury(std::shared_ptr<engine::TextEngine> engine) {
    std::lock_guard lock(mutex);
    dead.push_back(std::move(engine));
    changed.notify_all();
  }
  void close() {
    std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<engine::TextEngine>> dead;  // guarded by mutex
  std::size_t num_alive = 0;  // guarded by mutex; handed out and not destroyed
  bool closed = false;        // guarded by mutex
  std::thread thread;         // last: everything above exists when it starts
};

ModelManager::ModelManager(Loader loader, const Clock& clock)
    : loader_(std::move(loader)),
      clock_(clock),
      graveyard_(std::make_unique<Graveyard>()),
      worker_(1, 1024) {}

ModelManager::~ModelManager() {
  {
    std::lock_guard lock(mutex_);
    for (auto& [name, entry] : entries_) entry.record.engine.reset();
  }
  graveyard_->close();
}

void ModelManager::on_change(std::function<void(const ModelRecord&)> callback) {
  std::lock_guard lock(mutex_);
  on_change_ = std::move(callback);
}

void ModelManager::notify(const ModelRecord& record) const {
  std::function<void(const ModelRecord&)> callback;
  {
    std::lock_guard lock(mutex_);
    callback = on_change_;
  }
  if (callback) callback(record);
}

std::shared_ptr<engine::TextEngine> ModelManager::adopt(
    std::shared_ptr<engine::TextEngine> engine) {
  graveyard_->born();
  engine::TextEngine* raw = engine.get();
  // A plain pointer: every engine that is alive keeps the graveyard waiting in the manager's
  // destructor.
  return {raw, [held = std::move(engine), graveyard = graveyard_.get()](
                   engine::TextEngine*) mutable { graveyard->bury(std::move(held)); }};
}

Status ModelManager::add_source(ModelSource source) {
  std::lock_guard lock(mutex_);
  const std::string name = source.name;
  Entry entry;
  entry.record.name = name;
  entry.record.since = clock_.unix_seconds();
  entry.record.resident_bytes = source.resident_bytes;
  entry.source = std::move(source);
  if (!entries_.emplace(name, std::move(entry)).second) {
    return Error{ErrorCode::kAlreadyExists, "two models are named '" + name + "'"};
  }
  return ok_status();
}

Status ModelManager::add_engine(std::shared_ptr<engine::TextEngine> engine) {
  const std::string name = engine->info().model;
  ModelRecord record;
  {
    std::lock_guard lock(mutex_);
    if (entries_.contains(name))
      return Error{ErrorCode::kAlreadyExists, "two models are named '" + name + "'"};
    Entry& entry = entries_[name];
    entry.source.name = name;
    const std::uint64_t resident_bytes = engine->info().resident_bytes;
    entry.record = {
        name,         ModelState::kLoaded, clock_.unix_seconds(), adopt(std::move(engine)),
        std::nullopt, resident_bytes};
    record = entry.record;
  }
  notify(record);
  return ok_status();
}

void ModelManager::load(const std::string& name, Done done) {
  Status outcome = ok_status();
  ModelRecord record;
  bool start = false;
  {
    std::lock_guard lock(mutex_);
    const auto it = entries_.find(name);
    if (it == entries_.end()) {
      outcome = Error{ErrorCode::kNotFound, "there is no model '" + name + "' here", "model"};
    } else if (it->second.record.state == ModelState::kLoading) {
      it->second.waiting.push_back(std::move(done));
      return;
    } else if (it->second.record.state != ModelState::kLoaded) {
      if (it->second.source.folder.empty()) {
        outcome = Error{ErrorCode::kUnsupported,
                        "model '" + name + "' has no folder to load it from", "model"};
      } else {
        it->second.waiting.push_back(std::move(done));
        it->second.record.state = ModelState::kLoading;
        it->second.record.since = clock_.unix_seconds();
        it->second.record.error.reset();
        record = it->second.record;
        start = true;
      }
    }
  }
  if (!start) return done(std::move(outcome));
  notify(record);
  if (!worker_.try_post([this, name] { load_now(name); })) {
    finish_load(name,
                Error{ErrorCode::kResourceExhausted, "too many models are waiting to be loaded"});
  }
}

void ModelManager::load_now(const std::string& name) {
  ModelSource source;
  {
    std::lock_guard lock(mutex_);
    source = entries_.find(name)->second.source;
  }
  log::info("model_loading", {{"model", name}});
  finish_load(name, loader_(source));
}

void ModelManager::finish_load(const std::string& name,
                               Result<std::shared_ptr<engine::TextEngine>> loaded) {
  ModelRecord record;
  std::vector<Done> waiting;
  Status outcome = ok_status();
  {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_.find(name)->second;
    if (loaded.ok()) {
      entry.record.state = ModelState::kLoaded;
      entry.record.engine = adopt(std::move(*loaded));
      entry.record.resident_bytes = entry.record.engine->info().resident_bytes;
    } else {
      entry.record.state = ModelState::kFailed;
      entry.record.error = loaded.error();
      outcome = loaded.error();
    }
    entry.record.since = clock_.unix_seconds();
    waiting.swap(entry.waiting);
    record = entry.record;
  }
  if (record.state == ModelState::kLoaded) {
    log::info("model_loaded",
              {{"model", name}, {"context_length", record.engine->info().context_length}});
  } else {
    log::error("model_load_failed", {{"model", name}, {"reason", outcome.error().message}});
  }
  notify(record);
  for (Done& done : waiting) {
    if (done) done(outcome);
  }
}

Status ModelManager::load_and_wait(const std::string& name) {
  std::mutex mutex;
  std::condition_variable told;
  std::optional<Status> outcome;
  load(name, [&](Status status) {
    std::lock_guard lock(mutex);
    outcome = std::move(status);
    told.notify_all();
  });
  std::unique_lock lock(mutex);
  told.wait(lock, [&] { return outcome.has_value(); });
  return std::move(*outcome);
}

Status ModelManager::unload(const std::string& name) {
  ModelRecord record;
  std::shared_ptr<engine::TextEngine> engine;  // let go outside the lock
  {
    std::lock_guard lock(mutex_);
    const auto it = entries_.find(name);
    if (it == entries_.end()) {
      return Error{ErrorCode::kNotFound, "there is no model '" + name + "' here", "model"};
    }
    if (it->second.record.state == ModelState::kLoading) {
      return Error{ErrorCode::kUnavailable, "model '" + name + "' is being loaded", "model"};
    }
    if (it->second.record.state != ModelState::kLoaded) return ok_status();
    engine.swap(it->second.record.engine);
    it->second.record.state = ModelState::kUnloaded;
    it->second.record.since = clock_.unix_seconds();
    record = it->second.record;
  }
  log::info("model_unloaded", {{"model", name}});
  notify(record);
  return ok_status();
}

Result<std::shared_ptr<engine::TextEngine>> ModelManager::find(std::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it != entries_.end()) {
    if (it->second.record.engine) return it->second.record.engine;
    return Error{
        ErrorCode::kUnavailable,
        "model '" + std::string(name) + "' is " + std::string(to_string(it->second.record.state)),
        "model"};
  }
  std::vector<std::string> names;
  for (const auto& entry : entries_) names.push_back(entry.first);
  std::string message = "there is no model '" + std::string(name) + "' here";
  if (const auto near = nearest_name(name, names)) message += "; did you mean '" + *near + "'?";
  return Error{ErrorCode::kNotFound, std::move(message), "model"};
}

std::vector<ModelRecord> ModelManager::list() const {
  std::lock_guard lock(mutex_);
  std::vector<ModelRecord> records;
  for (const auto& [name, entry] : entries_) records.push_back(entry.record);
  return records;
}

}  // namespace flotilla::provider
