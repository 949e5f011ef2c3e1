// The constraint of one output, from the prompt's end on: thinking is free, the answer is not.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/grammar/compiled.h"

namespace flotilla::grammar {

// What a prepared job knows of it. Immutable, shared by its choices.
struct ConstraintPlan {
  enum class Start {
    kAnswer,    // the first token belongs to the answer
    kMayThink,  // or opens a thought
    kThinking,  // the prompt ends inside a thought
  };
  std::shared_ptr<const CompiledGrammar> grammar;
  Start start = Start::kAnswer;
  TokenId thought_open = -1, thought_close = -1;  // with kMayThink and kThinking
};

// Owned by the engine's thread.
//
// Close before the limit: a token may come only if the tokens left after it, one of them for the
// end, surely suffice to complete the answer. Where that cannot be had any more, every token must
// at least bring the end closer. The rule depends on the job and its tokens alone, so that a
// resumed output goes the same way.
class OutputConstraint {
 public:
  // `vocab_size`: of the logits. `end_ids` end the output; as text they never come.
  OutputConstraint(std::shared_ptr<const ConstraintPlan> plan, std::size_t vocab_size,
                   std::vector<TokenId> end_ids);

  // The tokens that may come next, one bit each; valid until the next call with the same `words`.
  // `num_left`: how many tokens the output may still have, the next one included. End tokens are
  // allowed when the answer is complete, and `wants_more` is false or nothing else could come. A
  // mask without any token is possible when the vocabulary lacks bytes that the answer needs.
  Status allowed(std::int64_t num_left, bool wants_more, std::vector<std::uint32_t>& words) const;
  // The same when it takes a moment only; else false, and `words` are of no use.
  Result<bool> try_allowed(std::int64_t num_left, bool wants_more,
                           std::vector<std::uint32_t>& words) const;
  // A token was generated that does not end the output. An error when it was not allowed.
  Status accept(TokenId id);
  // The answer is complete and nothing can follow.
  bool is_finished() const { return phase_ == Phase::kAnswer && matcher_.is_finished(); }

 private:
  enum class Phase { kStart, kThinking, kAnswer };

  Result<bool> fill(std::int64_t num_left, bool wants_more, bool only_if_quick,
                    std::vector<std::uint32_t>& words) const;
  void set(std::vector<std::uint32_t>& words, TokenId id, bool value) const;

  std::shared_ptr<const ConstraintPlan> plan_;
  std::size_t vocab_size_;
  std::vector<TokenId> end_ids_;
  Phase phase_;
  Matcher matcher_;
};

}  // namespace flotilla::grammar
