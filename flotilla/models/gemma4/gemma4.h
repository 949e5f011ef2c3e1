// Gemma 4, text: see README.md in this folder.
#pragma once

#include <memory>

#include "flotilla/models/causal_lm.h"

namespace flotilla::models::gemma4 {

Result<std::unique_ptr<CausalLM>> make(const checkpoint::Checkpoint& checkpoint,
                                       backend::Backend& backend, const LoadProgress& progress);

}  // namespace flotilla::models::gemma4
