// Loads one model for a command in the terminal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/flotilla/engine_settings.h"
#include "flotilla/base/result.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::apps {

struct LoadOptions {
  std::string model;  // folder, name, or empty
  std::string models_dir;
  std::int64_t threads = 0;  // 0: one per core
  bool pin_threads = false;
  EngineSettings engine = {};
  std::optional<EngineMemory> memory = {};  // none: its own
};

// Shows a progress bar on a terminal, a line otherwise.
Result<std::shared_ptr<engine::TextEngine>> load_model(const LoadOptions& options);

}  // namespace flotilla::apps
