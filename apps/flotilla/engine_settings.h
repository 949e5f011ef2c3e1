// How the engines of `serve` and `provider` share memory and time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "apps/flotilla/device.h"
#include "flotilla/engine/model_engine.h"
#include "flotilla/settings/settings.h"

namespace flotilla::apps {

struct EngineSettings {
  std::string device = "auto";       // see choose_device()
  double device_memory_share = 0.9;  // of a card's memory
  std::string isolate = "auto";      // see wants_worker()
  std::int64_t memory_cap_mib = 0;   // 0: probe_hardware()'s
  std::int64_t context_length = 0;   // 0: the models' own
  std::int64_t max_sequences = 32, max_queue = 256;
  bool no_prefix_cache = false;
  std::int64_t prefix_cache_mib = 0, checkpoint_mib = 0, checkpoint_interval = 4096;
  std::int64_t admission_timeout_s = 120, prefill_timeout_s = 120, decode_timeout_s = 120,
               slow_reader_timeout_s = 120, first_token_timeout_s = 0;
};

void declare(settings::Settings& settings, EngineSettings& engine);

// Whether models run in processes of their own: "on", "off", or "auto", which is on for a card.
Result<bool> wants_worker(const EngineSettings& settings, const Device& device);

// What all models of the process may take together. kUnavailable when the device is not there.
Result<EngineMemory> make_memory(const EngineSettings& settings);
void apply(const EngineSettings& settings, engine::ModelEngineOptions& options);

}  // namespace flotilla::apps
