// The text engine of a checkpoint folder: tokenizer, template, model, backend and the batching
// engine put together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "flotilla/backend/backend.h"
#include "flotilla/base/result.h"
#include "flotilla/engine/scheduler.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

// Bytes of the weights taken so far and in all; called on the loading thread or a hashing one, one
// call at a time.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct ModelEngineOptions {
  std::string folder;
  std::string name;     // that clients use; empty: the folder's own name
  int num_threads = 0;  // of the CPU backend; 0: one per core
  backend::CpuTarget target = backend::CpuTarget::kBest;
  bool pack_weights = true;
  // What weights and key-value pages may take together, less what other models hold; 0: not limited
  // here.
  std::uint64_t memory_cap_bytes = 0;
  std::uint64_t kv_bytes = 0;  // of the page pool; 0: what the cap allows and the sequences can use
  std::int64_t context_length = 0;  // 0: the model's own; never more than that
  SchedulerOptions scheduler = {};
  std::int64_t max_waiting = 256;  // requests queued beyond scheduler.max_sequences
  LoadProgress progress = {};
};

// Blocks while it reads and hashes. Errors name the file, or the bytes that are missing.
Result<std::shared_ptr<TextEngine>> load_model_engine(const ModelEngineOptions& options);

}  // namespace flotilla::engine
