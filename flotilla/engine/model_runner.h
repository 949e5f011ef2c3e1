// Runs steps on a model and a backend.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "flotilla/backend/backend.h"
#include "flotilla/engine/step_runner.h"
#include "flotilla/models/causal_lm.h"

namespace flotilla::engine {

// Owned by the engine thread. `model` and `backend` must outlive it.
class ModelRunner final : public StepRunner {
 public:
  // `before_step`: see ModelEngineOptions.
  ModelRunner(const models::CausalLM& model, backend::Backend& backend,
              std::function<void(backend::Backend&)> before_step = {});
  std::span<const float> run(std::span<const ScheduledRow> rows) override;
  bool can_choose() const override { return can_choose_; }
  std::span<const TokenId> chosen() const override { return chosen_; }

 private:
  const models::CausalLM& model_;
  backend::Backend& backend_;
  std::unique_ptr<models::Workspace> workspace_;
  std::vector<models::ForwardRow> forward_rows_;
  tensor::Tensor logits_;
  const bool can_choose_;
  const std::function<void(backend::Backend&)> before_step_;
  std::vector<TokenId> greedy_, chosen_;
};

}  // namespace flotilla::engine
