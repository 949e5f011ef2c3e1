#include "apps/flotilla/server_models.h"

#include <utility>

#include "apps/flotilla/kernel_check.h"
#include "apps/flotilla/load_model.h"
#include "apps/flotilla/model_argument.h"
#include "apps/flotilla/node_state.h"
#include "flotilla/checkpoint/model_folder.h"
#include "flotilla/engine/scripted_engine.h"
#include "flotilla/log/log.h"

namespace flotilla::apps {

namespace {

std::string name_of_folder(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder.substr(folder.rfind('/') + 1);
}

Result<std::vector<provider::ModelSource>> find_sources(const ServerModels& options) {
  std::vector<provider::ModelSource> sources;
  for (const std::string& model : options.models) {
    FLOTILLA_TRY(std::string folder, resolve_model(model, options.models_dir));
    std::string name = name_of_folder(folder);
    sources.push_back({.name = std::move(name), .folder = std::move(folder)});
  }
  if (!sources.empty()) return sources;
  FLOTILLA_TRY(const auto found, checkpoint::scan_models(options.models_dir));
  for (const auto& model : found) {
    if (model.ok()) {
      sources.push_back({.name = model.name, .folder = model.folder});
    } else {
      log::warn("model_left_out", {{"model", model.name}, {"reason", model.problems.front()}});
    }
  }
  if (sources.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "no usable model in " + options.models_dir + "; see: flotilla models list"};
  }
  return sources;
}

}  // namespace

void declare(settings::Settings& settings, ServerModels& options) {
  options.models_dir = default_models_dir();
  settings.add("models", &options.models,
               "folder or name of a model to offer; default: all in models_dir");
  settings.add("models_dir", &options.models_dir, "folder whose sub-folders are models");
  settings.add("scripted", &options.scripted,
               "play a script instead of running models (docs/scripted-engine.md)");
  settings.add("threads", &options.threads, 0, 1024, "threads for computing; 0: one per core");
  settings.add("pin_threads", &options.pin_threads, "keep computing threads on cores of their own");
  declare(settings, options.engine);
}

provider::ModelManager::Loader make_loader(const ServerModels& options, EngineMemory memory) {
  return [&options, memory = std::move(memory)](const provider::ModelSource& source) {
    return load_model({.model = source.folder,
                       .models_dir = options.models_dir,
                       .threads = options.threads,
                       .pin_threads = options.pin_threads,
                       .engine = options.engine,
                       .memory = memory});
  };
}

Status add_models(provider::ModelManager& manager, const ServerModels& options,
                  const EngineMemory& memory) {
  if (!options.scripted.empty()) {
    FLOTILLA_TRY(auto engines, engine::load_scripted_engines(options.scripted));
    for (auto& engine : engines) FLOTILLA_TRY_STATUS(manager.add_engine(std::move(engine)));
    return ok_status();
  }
  FLOTILLA_TRY(auto sources, find_sources(options));
  FLOTILLA_TRY_STATUS(
      check_kernels_at_start(static_cast<int>(options.threads), default_state_dir()));
  FLOTILLA_TRY(const Device device, choose_device(options.engine.device));
  FLOTILLA_TRY_STATUS(wants_worker(options.engine, device));
  if (device.cuda) FLOTILLA_TRY_STATUS(check_card_at_start(*device.cuda));
  engine::ModelEngineOptions engine_options;
  apply(options.engine, engine_options);
  engine_options.cuda_device = device.cuda;
  for (provider::ModelSource& source : sources) {
    // One that cannot be read is told when it is loaded.
    engine_options.folder = source.folder;
    const auto need = engine::memory_need(engine_options);
    if (need.ok()) source.resident_bytes = memory.device ? need->device : need->host;
    FLOTILLA_TRY_STATUS(manager.add_source(source));
  }
  if (options.lazy) return ok_status();
  for (const provider::ModelSource& source : sources) {
    if (source.resident_bytes > 0) memory.of_models().expect(source.name, source.resident_bytes);
  }
  std::size_t num_loaded = 0;
  Status last = ok_status();
  for (const provider::ModelSource& source : sources) {
    Status loaded = manager.load_and_wait(source.name);
    if (loaded.ok()) {
      ++num_loaded;
    } else if (!options.models.empty()) {
      return loaded;
    } else {
      last = std::move(loaded);  // the manager has logged it
    }
  }
  return num_loaded > 0 ? ok_status() : last;
}

}  // namespace flotilla::apps
