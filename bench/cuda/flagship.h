// Gemma 4 31B with made-up weights, built on the card without a checkpoint.
#pragma once

#include <cstdint>
#include <memory>

#include "flotilla/backend/backend.h"
#include "flotilla/models/causal_lm.h"

namespace flotilla::cuda_check {

struct Flagship {
  std::unique_ptr<models::CausalLM> model;
  std::int64_t weight_bytes = 0;  // read by one decode step
};
Flagship make_flagship(backend::Backend& backend, int layers);

}  // namespace flotilla::cuda_check
