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
//
// Where tokens are chosen on the device, the next step of the sequences that decode begins before
// the tokens of this one are read: the device goes on while the engine works. When the engine then
// asks for something else, rows that it does ask for are taken from what has begun (the bits of a
// row do not depend on the rows beside it), and the others are computed as usual. What a row that
// nobody asks for has written lies beyond its sequence's end.
class ModelRunner final : public StepRunner {
 public:
  // `before_step`: see ModelEngineOptions.
  ModelRunner(const models::CausalLM& model, backend::Backend& backend,
              std::function<void(backend::Backend&)> before_step = {});
  std::span<const float> run(std::span<const ScheduledRow> rows) override;
  bool can_choose() const override { return can_choose_; }
  std::span<const TokenId> chosen() const override { return chosen_; }
  void wait() override { backend_.wait(); }
  std::vector<backend::Shortlist> shortlist(std::span<const backend::ShortlistRow> rows) override;
  std::span<const float> read_logits(std::span<const std::int32_t> places) override;
  // Rows that had begun when they were asked for.
  std::uint64_t num_rows_ahead() const { return num_rows_ahead_; }

 private:
  // A row of a step that has begun.
  struct Begun {
    RequestId id;
    std::uint64_t epoch = 0;  // of the sequence's state
    std::int64_t position = 0;
  };
  struct Ahead {
    std::vector<Begun> rows = {};
    std::shared_ptr<backend::HostCopy> tokens = {};  // null: nothing has begun
  };

  void add_forward_row(const ScheduledRow& row, std::int64_t shift);
  // For each row its place in what has begun, or -1.
  std::vector<std::int32_t> match(std::span<const ScheduledRow> rows) const;
  // Begins the step after `rows`, each of which is row from[i] of the step that began last.
  void begin_next(std::span<const ScheduledRow> rows, std::span<const std::int32_t> from);
  std::span<const float> run_now(std::span<const ScheduledRow> rows);

  const models::CausalLM& model_;
  backend::Backend& backend_;
  std::unique_ptr<models::Workspace> workspace_;
  std::vector<models::ForwardRow> forward_rows_;
  tensor::Tensor logits_;
  tensor::Tensor kept_;                  // where the backend computes: of all rows that want any
  std::vector<std::int32_t> kept_rows_;  // of kept_: those that stay
  tensor::Tensor read_;
  const bool can_choose_;
  const std::function<void(backend::Backend&)> before_step_;
  std::vector<TokenId> greedy_, chosen_;
  Ahead ahead_;
  std::uint64_t num_rows_ahead_ = 0;
};

}  // namespace flotilla::engine
