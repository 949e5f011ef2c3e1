#include "flotilla/engine/model_runner.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace flotilla::engine {
namespace {

// The token that stands for one that is not known yet.
constexpr TokenId kUnknownToken = 0;

bool decodes(const ScheduledRow& row) { return row.chooses && row.count == 1; }

}  // namespace

ModelRunner::ModelRunner(const models::CausalLM& model, backend::Backend& backend,
                         std::function<void(backend::Backend&)> before_step)
    : model_(model),
      backend_(backend),
      workspace_(model.make_workspace()),
      can_choose_(backend.capabilities().chooses_tokens),
      before_step_(std::move(before_step)) {}

// `shift` 1: the token after the row's.
void ModelRunner::add_forward_row(const ScheduledRow& row, std::int64_t shift) {
  const std::span<const TokenId> tokens = row.sequence->tokens;
  const std::span<const TokenId> ids = shift > 0
                                           ? std::span(&kUnknownToken, 1)
                                           : tokens.subspan(static_cast<std::size_t>(row.begin),
                                                            static_cast<std::size_t>(row.count));
  forward_rows_.push_back(
      {.ids = ids,
       .first_position = static_cast<int>(row.begin + shift),
       .wants_logits = row.wants_logits ? models::WantsLogits::kLast : models::WantsLogits::kNone,
       .logits_too = !row.chooses && !row.stays,
       .layers = row.sequence->state.views()});
}

std::vector<std::int32_t> ModelRunner::match(std::span<const ScheduledRow> rows) const {
  std::vector<std::int32_t> places(rows.size(), -1);
  if (ahead_.tokens == nullptr) return places;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!decodes(rows[i])) continue;
    const Sequence& sequence = *rows[i].sequence;
    const auto found =
        std::find_if(ahead_.rows.begin(), ahead_.rows.end(), [&](const Begun& begun) {
          return begun.id == sequence.id && begun.epoch == sequence.state.epoch() &&
                 begun.position == rows[i].begin;
        });
    if (found != ahead_.rows.end()) {
      places[i] = static_cast<std::int32_t>(found - ahead_.rows.begin());
    }
  }
  return places;
}

void ModelRunner::begin_next(std::span<const ScheduledRow> rows,
                             std::span<const std::int32_t> from) {
  ahead_ = {};
  const bool room = std::all_of(rows.begin(), rows.end(), [](const ScheduledRow& row) {
    return decodes(row) && row.sequence->state.bytes_to_reserve(row.begin + 2) == 0;
  });
  if (!room) return;
  forward_rows_.clear();
  std::vector<Begun> begun;
  for (const ScheduledRow& row : rows) {
    add_forward_row(row, 1);
    begun.push_back({row.sequence->id, row.sequence->state.epoch(), row.begin + 1});
  }
  auto tokens = model_.start(backend_, *workspace_, {.rows = forward_rows_, .chosen = from});
  ahead_ = {std::move(begun), std::move(tokens)};
}

std::span<const float> ModelRunner::run(std::span<const ScheduledRow> rows) {
  if (before_step_) before_step_(backend_);
  chosen_.clear();
  kept_ = read_ = {};
  kept_rows_.clear();
  if (!can_choose_) return run_now(rows);
  std::vector<std::int32_t> places = match(rows);
  const bool all_begun =
      std::all_of(places.begin(), places.end(), [](std::int32_t p) { return p >= 0; });
  if (all_begun) {
    num_rows_ahead_ += rows.size();
    const auto now = std::exchange(ahead_, {}).tokens;
    begin_next(rows, places);
    const tensor::Tensor tokens = now->wait();
    for (const std::int32_t place : places) chosen_.push_back(tokens.data<TokenId>()[place]);
    return {};
  }
  const auto earlier = std::exchange(ahead_, {}).tokens;
  const bool none_begun =
      std::all_of(places.begin(), places.end(), [](std::int32_t p) { return p < 0; });
  if (none_begun && std::all_of(rows.begin(), rows.end(), decodes)) {
    forward_rows_.clear();
    for (const ScheduledRow& row : rows) add_forward_row(row, 0);
    if (const auto now = model_.start(backend_, *workspace_, {.rows = forward_rows_})) {
      std::iota(places.begin(), places.end(), 0);
      begin_next(rows, places);
      const tensor::Tensor tokens = now->wait();
      chosen_.assign(tokens.data<TokenId>(), tokens.data<TokenId>() + rows.size());
      return {};
    }
  }
  std::vector<ScheduledRow> others;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (places[i] < 0) others.push_back(rows[i]);
  }
  const std::span<const float> logits = run_now(others);
  if (earlier == nullptr || none_begun) return logits;
  num_rows_ahead_ += rows.size() - others.size();
  // In the order of the rows: what was begun, and what was computed now.
  const std::vector<TokenId> now = std::exchange(chosen_, {});
  const tensor::Tensor tokens = earlier->wait();
  std::size_t next = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (places[i] >= 0) {
      chosen_.push_back(tokens.data<TokenId>()[places[i]]);
    } else if (rows[i].chooses) {
      chosen_.push_back(now[next++]);
    }
  }
  return logits;
}

std::span<const float> ModelRunner::run_now(std::span<const ScheduledRow> rows) {
  forward_rows_.clear();
  std::size_t num_wanted = 0;
  for (const ScheduledRow& row : rows) {
    if (row.wants_logits) ++num_wanted;
    add_forward_row(row, 0);
  }
  const bool any = std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.chooses; });
  const bool keeps = std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.stays; });
  greedy_.assign(any ? num_wanted : 0, TokenId{-1});
  logits_ =
      model_.forward(backend_, *workspace_,
                     {.rows = forward_rows_, .greedy = greedy_, .kept = keeps ? &kept_ : nullptr});
  std::int32_t next = 0;
  for (const ScheduledRow& row : rows) {
    if (!row.wants_logits) continue;
    if (row.chooses) chosen_.push_back(greedy_[static_cast<std::size_t>(next)]);
    if (row.stays) kept_rows_.push_back(next);
    ++next;
  }
  if (logits_.empty()) return {};
  return {logits_.data<float>(), static_cast<std::size_t>(logits_.shape().num_elements())};
}

std::vector<backend::Shortlist> ModelRunner::shortlist(
    std::span<const backend::ShortlistRow> rows) {
  std::vector<backend::ShortlistRow> placed(rows.begin(), rows.end());
  for (backend::ShortlistRow& row : placed) {
    row.row = kept_rows_.at(static_cast<std::size_t>(row.row));
  }
  return backend_.shortlist({.x = kept_, .rows = placed});
}

std::span<const float> ModelRunner::read_logits(std::span<const std::int32_t> places) {
  std::vector<std::int32_t> rows;
  for (const std::int32_t place : places) {
    rows.push_back(kept_rows_.at(static_cast<std::size_t>(place)));
  }
  const auto count = static_cast<std::int64_t>(rows.size());
  const tensor::Tensor gathered = backend_.allocate({count, kept_.dim(1)}, kept_.dtype());
  backend_.gather_rows({.source = kept_, .rows = rows, .out = gathered});
  read_ = backend_.to_host(gathered);
  return {read_.data<float>(), static_cast<std::size_t>(read_.shape().num_elements())};
}

}  // namespace flotilla::engine
