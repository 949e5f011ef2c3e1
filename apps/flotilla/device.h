// Where the models of a program compute: the setting `device`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "flotilla/base/result.h"
#include "flotilla/engine/memory_budget.h"

namespace flotilla::apps {

struct Device {
  std::optional<int> cuda;  // not set: the CPU
  std::string name;         // of the card
  std::uint64_t memory_bytes = 0;
};

// "auto" (the first card that can be used, else the CPU), "cpu", "cuda" or "cuda:N".
// kInvalidArgument for anything else; kUnavailable with the driver's words when that card cannot be
// used.
Result<Device> choose_device(const std::string& setting);

// What all models of a program may take together: of the machine's memory and of the card's.
struct EngineMemory {
  std::shared_ptr<engine::MemoryBudget> host;
  std::shared_ptr<engine::MemoryBudget> device;  // null: the CPU computes
  std::string device_name = {};

  // Where the models' weights and states go.
  engine::MemoryBudget& of_models() const { return device ? *device : *host; }
};

}  // namespace flotilla::apps
