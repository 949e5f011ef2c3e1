// Which models `serve` and `provider` offer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/flotilla/engine_settings.h"
#include "flotilla/base/result.h"
#include "flotilla/provider/model_manager.h"
#include "flotilla/settings/settings.h"

namespace flotilla::apps {

struct ServerModels {
  std::vector<std::string> models;  // folders or names; none: everything in models_dir
  std::string models_dir;
  std::string scripted;      // a script instead of models
  std::int64_t threads = 0;  // 0: one per core
  bool pin_threads = false;
  bool lazy = false;  // load at the first order of the coordinator
  EngineSettings engine;
};

void declare(settings::Settings& settings, ServerModels& options);

// `options` must outlive the manager.
provider::ModelManager::Loader make_loader(const ServerModels& options, EngineMemory memory);

// Checks the kernels of this machine, adds all models and, unless lazy, loads them. A model that
// does not load is an error when it was asked for by name or is the only one; else it is left out
// with a line in the log.
Status add_models(provider::ModelManager& manager, const ServerModels& options,
                  const EngineMemory& memory);

}  // namespace flotilla::apps
