#include "flotilla/grammar/output_constraint.h"

#include <algorithm>

namespace flotilla::grammar {

OutputConstraint::OutputConstraint(std::shared_ptr<const ConstraintPlan> plan,
                                   std::size_t vocab_size, std::vector<TokenId> end_ids)
    : plan_(std::move(plan)),
      vocab_size_(vocab_size),
      end_ids_(std::move(end_ids)),
      phase_(plan_->start == ConstraintPlan::Start::kAnswer     ? Phase::kAnswer
             : plan_->start == ConstraintPlan::Start::kMayThink ? Phase::kStart
                                                                : Phase::kThinking),
      matcher_(plan_->grammar) {}

void OutputConstraint::set(std::vector<std::uint32_t>& words, TokenId id, bool value) const {
  if (id < 0 || static_cast<std::size_t>(id) >= vocab_size_) return;
  const std::uint32_t bit = 1u << (static_cast<std::uint32_t>(id) % 32);
  std::uint32_t& word = words[static_cast<std::size_t>(id) / 32];
  word = value ? word | bit : word & ~bit;
}

Status OutputConstraint::allowed(std::int64_t num_left, bool wants_more,
                                 std::vector<std::uint32_t>& words) const {
  FLOTILLA_TRY_STATUS(fill(num_left, wants_more, false, words));
  return ok_status();
}

Result<bool> OutputConstraint::try_allowed(std::int64_t num_left, bool wants_more,
                                           std::vector<std::uint32_t>& words) const {
  return fill(num_left, wants_more, true, words);
}

Result<bool> OutputConstraint::fill(std::int64_t num_left, bool wants_more, bool only_if_quick,
                                    std::vector<std::uint32_t>& words) const {
  const Vocabulary& vocabulary = plan_->grammar->vocabulary();
  const std::size_t num_words = (vocab_size_ + 31) / 32;
  words.resize(std::max(num_words, vocabulary.num_words()));
  // After the next token and with one for the end.
  const std::int64_t spare = std::max<std::int64_t>(num_left - 2, 0);
  const std::uint32_t distance = matcher_.distance();
  if (phase_ == Phase::kThinking) {
    std::fill(words.begin(), words.end(), 0);
    // A token of thought, the closing one, the answer, the end.
    if (spare > static_cast<std::int64_t>(distance)) {
      const auto text = vocabulary.text_mask();
      std::copy(text.begin(), text.end(), words.begin());
      for (const TokenId id : end_ids_) set(words, id, false);
    }
    set(words, plan_->thought_close, true);
    words.resize(num_words);
    return true;
  }
  const auto least = static_cast<std::int64_t>(distance) - 1;
  const auto budget = static_cast<std::uint64_t>(std::max({spare, least, std::int64_t{0}}));
  if (only_if_quick) {
    FLOTILLA_TRY(const bool filled, matcher_.try_fill_mask(words, budget));
    if (!filled) return false;
  } else {
    FLOTILLA_TRY_STATUS(matcher_.fill_mask(words, budget));
  }
  words.resize(num_words);
  for (const TokenId id : end_ids_) set(words, id, false);
  if (phase_ == Phase::kStart && spare > static_cast<std::int64_t>(distance) + 1) {
    set(words, plan_->thought_open, true);
  }
  if (!matcher_.is_accepting()) return true;
  const bool others =
      std::any_of(words.begin(), words.end(), [](std::uint32_t w) { return w != 0; });
  if (!wants_more || !others) {
    for (const TokenId id : end_ids_) set(words, id, true);
  }
  return true;
}

Status OutputConstraint::accept(TokenId id) {
  if (phase_ == Phase::kThinking) {
    if (id == plan_->thought_close) phase_ = Phase::kAnswer;
    return ok_status();
  }
  if (phase_ == Phase::kStart && id == plan_->thought_open) {
    phase_ = Phase::kThinking;
    return ok_status();
  }
  phase_ = Phase::kAnswer;
  if (matcher_.accept(id)) return ok_status();
  return Error{ErrorCode::kInvalidArgument,
               "token " + std::to_string(id) + " does not fit the constraint of the output"};
}

}  // namespace flotilla::grammar
