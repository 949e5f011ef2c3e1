#include "flotilla/engine/model_runner.h"

#include <cstddef>

namespace flotilla::engine {

ModelRunner::ModelRunner(const models::CausalLM& model, backend::Backend& backend)
    : model_(model), backend_(backend), workspace_(model.make_workspace()) {}

std::span<const float> ModelRunner::run(std::span<const ScheduledRow> rows) {
  forward_rows_.clear();
  for (const ScheduledRow& row : rows) {
    const std::span<const TokenId> tokens = row.sequence->tokens;
    forward_rows_.push_back({
        .ids = tokens.subspan(static_cast<std::size_t>(row.begin),
                              static_cast<std::size_t>(row.count)),
        .first_position = static_cast<int>(row.begin),
        .wants_logits = row.wants_logits ? models::WantsLogits::kLast : models::WantsLogits::kNone,
        .layers = row.sequence->state.views(),
    });
  }
  logits_ = model_.forward(backend_, *workspace_, {.rows = forward_rows_});
  if (logits_.empty()) return {};
  return {logits_.data<float>(), static_cast<std::size_t>(logits_.shape().num_elements())};
}

}  // namespace flotilla::engine
