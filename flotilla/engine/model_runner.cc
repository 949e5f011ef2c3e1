#include "flotilla/engine/model_runner.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace flotilla::engine {

ModelRunner::ModelRunner(const models::CausalLM& model, backend::Backend& backend,
                         std::function<void(backend::Backend&)> before_step)
    : model_(model),
      backend_(backend),
      workspace_(model.make_workspace()),
      can_choose_(backend.capabilities().chooses_tokens),
      before_step_(std::move(before_step)) {}

std::span<const float> ModelRunner::run(std::span<const ScheduledRow> rows) {
  if (before_step_) before_step_(backend_);
  forward_rows_.clear();
  std::size_t num_wanted = 0;
  for (const ScheduledRow& row : rows) {
    const std::span<const TokenId> tokens = row.sequence->tokens;
    if (row.wants_logits) ++num_wanted;
    forward_rows_.push_back({
        .ids = tokens.subspan(static_cast<std::size_t>(row.begin),
                              static_cast<std::size_t>(row.count)),
        .first_position = static_cast<int>(row.begin),
        .wants_logits = row.wants_logits ? models::WantsLogits::kLast : models::WantsLogits::kNone,
        .logits_too = !row.chooses,
        .layers = row.sequence->state.views(),
    });
  }
  const bool any = std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.chooses; });
  greedy_.assign(any ? num_wanted : 0, TokenId{-1});
  logits_ = model_.forward(backend_, *workspace_, {.rows = forward_rows_, .greedy = greedy_});
  chosen_.clear();
  std::size_t next = 0;
  for (const ScheduledRow& row : rows) {
    if (!row.wants_logits || !any) continue;
    if (row.chooses) chosen_.push_back(greedy_[next]);
    ++next;
  }
  if (logits_.empty()) return {};
  return {logits_.data<float>(), static_cast<std::size_t>(logits_.shape().num_elements())};
}

}  // namespace flotilla::engine
