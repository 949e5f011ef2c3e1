// Which code serves which config.json.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "flotilla/models/causal_lm.h"

namespace flotilla::models {

using ModelFactory = Result<std::unique_ptr<CausalLM>> (*)(const checkpoint::Checkpoint& checkpoint,
                                                           backend::Backend& backend,
                                                           const LoadProgress& progress);

struct FamilyEntry {
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // first of "architectures"; used where model_type is missing
  ModelFactory make;
};

std::span<const FamilyEntry> families();

// kUnsupported names what the configuration says and what is supported.
Result<const FamilyEntry*> find_family(const checkpoint::Checkpoint& checkpoint);

}  // namespace flotilla::models
