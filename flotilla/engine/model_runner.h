// Runs steps on a model and a backend.
#pragma once

#include <memory>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/engine/step_runner.h"
#include "flotilla/models/causal_lm.h"

namespace flotilla::engine {

// Owned by the engine thread. `model` and `backend` must outlive it.
class ModelRunner final : public StepRunner {
 public:
  ModelRunner(const models::CausalLM& model, backend::Backend& backend);
  std::span<const float> run(std::span<const ScheduledRow> rows) override;

 private:
  const models::CausalLM& model_;
  backend::Backend& backend_;
  std::unique_ptr<models::Workspace> workspace_;
  std::vector<models::ForwardRow> forward_rows_;
  tensor::Tensor logits_;
};

}  // namespace flotilla::engine
