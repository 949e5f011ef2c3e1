// The models of this machine, by the name that clients use: loads, hands out, unloads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/base/result.h"
#include "flotilla/engine/text_engine.h"
#include "flotilla/provider/worker_pool.h"

namespace flotilla::provider {

struct ModelSource {
  std::string name;                  // what clients ask for
  std::string folder;                // of the checkpoint
  std::uint64_t resident_bytes = 0;  // that it will take, where its headers were read
};

enum class ModelState { kUnloaded, kLoading, kLoaded, kFailed };
std::string_view to_string(ModelState state);

struct ModelRecord {
  std::string name;
  ModelState state = ModelState::kUnloaded;
  std::int64_t since = 0;                      // unix seconds of the last change
  std::shared_ptr<engine::TextEngine> engine;  // when loaded
  std::optional<Error> error;                  // when failed
  std::uint64_t resident_bytes = 0;            // loaded or as it will be; 0: unknown
};

// Thread-safe. Loading and the destruction of engines happen on one thread of its own: an engine
// joins its threads when it goes, which must never happen on one of them.
class ModelManager {
 public:
  // Called on the loading thread.
  using Loader = std::function<Result<std::shared_ptr<engine::TextEngine>>(const ModelSource&)>;
  using Done = std::function<void(Status)>;

  // `clock` must outlive it.
  ModelManager(Loader loader, const Clock& clock);
  // Waits for engines that jobs still hold: end those first.
  ~ModelManager();
  ModelManager(const ModelManager&) = delete;
  ModelManager& operator=(const ModelManager&) = delete;

  // kAlreadyExists for a name that is taken.
  Status add_source(ModelSource source);  // offered, not loaded
  Status add_engine(std::shared_ptr<engine::TextEngine>
                        engine);  // loaded, under info().model; cannot be loaded again

  // `done` runs on the loading thread, at once when the model is loaded already. kNotFound for an
  // unknown name.
  void load(const std::string& name, Done done);
  Status load_and_wait(const std::string& name);
  // Takes it out of service; jobs that run on it go on, its memory comes back when the last one has
  // ended.
  Status unload(const std::string& name);

  // kNotFound (param "model", with the nearest name) or kUnavailable (not loaded).
  Result<std::shared_ptr<engine::TextEngine>> find(std::string_view name) const;
  std::vector<ModelRecord> list() const;  // by name

  // Runs after any change of a state, on the thread that made it; null: nobody listens any more.
  // Calls under way when this returns may still end.
  void on_change(std::function<void(const ModelRecord&)> callback);

 private:
  struct Entry {
    ModelSource source;
    ModelRecord record;
    std::vector<Done> waiting;
  };
  std::shared_ptr<engine::TextEngine> adopt(std::shared_ptr<engine::TextEngine> engine);
  void load_now(const std::string& name);
  void finish_load(const std::string& name, Result<std::shared_ptr<engine::TextEngine>> loaded);

  // Holds engines that nobody uses any more until the loading thread destroys them.
  struct Graveyard;

  const Loader loader_;
  const Clock& clock_;
  std::unique_ptr<Graveyard> graveyard_;
  void notify(const ModelRecord& record) const;

  mutable std::mutex mutex_;
  std::function<void(const ModelRecord&)> on_change_;  // guarded by mutex_
  std::map<std::string, Entry, std::less<>> entries_;  // guarded by mutex_
  WorkerPool worker_;                                  // one thread; last, so that it stops first
};

}  // namespace flotilla::provider
