// The text engine of a checkpoint folder: tokenizer, template, model, backend and the batching
// engine put together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "flotilla/backend/backend.h"
#include "flotilla/base/result.h"
#include "flotilla/engine/engine_core.h"
#include "flotilla/engine/memory_budget.h"
#include "flotilla/engine/text_engine.h"

namespace flotilla::engine {

// Bytes of the weights taken so far and in all; called on the loading thread or a hashing one, one
// call at a time.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct ModelEngineOptions {
  std::string folder;
  std::string name;     // that clients use; empty: the folder's own name
  int num_threads = 0;  // of the CPU backend; 0: one per core
  bool pin_threads = false;
  backend::CpuTarget target = backend::CpuTarget::kBest;
  bool pack_weights = true;
  // The NVIDIA card that computes in the place of the CPU. Steps are made larger there where
  // `scheduler` has its defaults.
  std::optional<int> cuda_device = {};
  // As `memory`, of the card; null: what is free.
  std::shared_ptr<MemoryBudget> device_memory = {};
  // What weights, workspace and state of all models may take; null: not limited here. The load is
  // refused, before anything is allocated, when they do not fit.
  std::shared_ptr<MemoryBudget> memory = {};
  std::uint64_t kv_bytes =
      0;  // of the page pool; 0: what `memory` allows and the sequences can use, or the whole card
  std::int64_t context_length = 0;  // 0: the model's own; never more than that
  SchedulerOptions scheduler = {};
  state::PrefixCacheOptions prefix_cache = {};
  LeaseOptions leases = {};
  std::int64_t max_waiting = 256;  // requests queued beyond scheduler.max_sequences
  LoadProgress progress = {};
  // See recovering_engine.h.
  std::uint64_t first_id = 1;
  std::function<void()> on_device_lost = {};
  // For tests: called on the engine's thread before each step.
  std::function<void(backend::Backend&)> before_step = {};
};

// What a model takes from the two budgets besides its state: the tensors of the checkpoint, as its
// headers say, and scratch memory for steps.
struct MemoryNeed {
  std::uint64_t host = 0;
  std::uint64_t device = 0;  // 0 without a card
};
// Reads headers only.
Result<MemoryNeed> memory_need(const ModelEngineOptions& options);

// Blocks while it reads and hashes. Errors name the file, or the bytes that are missing. A model on
// a card is loaded again when the card is lost, unless on_device_lost is set: whoever sets it does
// that.
Result<std::shared_ptr<TextEngine>> load_model_engine(const ModelEngineOptions& options);

}  // namespace flotilla::engine
