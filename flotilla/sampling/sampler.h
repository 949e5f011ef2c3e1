// From a row of logits to a token. The result depends on the row, the parameters, the tokens so far
// and the generation index alone, to the bit and on every machine.
//
// Order of operations, in float32 where not said otherwise:
//  1. A NaN or infinite logit fails this row (kModelFault), and this row only.
//  2. logit_bias is added.
//  3. repetition_penalty, once per distinct token of the prompt and of the output: a positive logit
//     is divided by it, another multiplied (as in CTRL and vLLM).
//  4. frequency_penalty * count + presence_penalty is subtracted per distinct token of the output
//     (as OpenAI defines it; the prompt does not count).
//  5. Tokens that a constraint does not allow and banned ones (end tokens before min_tokens) are
//     taken out.
//  6. Temperature below 1e-6: the largest value, ties to the lower id. Otherwise the candidates in
//     the order (value descending, id ascending), each with the weight
//     exp((value - largest) / temperature) in float64; weights below exp(-32) are taken out.
//  7. top_k keeps the first k. top_p keeps the shortest prefix whose weights sum to at least top_p
//     of what top_k left. min_p keeps weights of at least min_p of the largest. Sums run in order.
//  8. The uniform number of (seed, choice, index) picks: the first candidate at which the running
//     sum exceeds number * total.
// With top_k, and where the largest value is taken, a few candidates decide: then steps 1 to 5 may
// be done where the logits are (backend/shortlist.h), and the rest here, with the same result.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "flotilla/backend/shortlist.h"
#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/sampling/sampling_params.h"

namespace flotilla::sampling {

// Working memory, the size of the vocabulary; shared by the samplers of one thread. Holds what the
// last rows were likely to say: to be wiped when a request ends.
struct SamplerScratch {
  using Candidate = backend::Candidate;
  std::vector<float> adjusted;
  std::vector<Candidate> candidates;
  std::vector<Candidate> sorting;
  std::vector<double> weights;

  void wipe();
};

// One per sequence; owned by the engine's thread.
class Sampler {
 public:
  // `params` must be valid for the vocabulary.
  Sampler(SamplingParams params, std::span<const TokenId> prompt);

  // The token at the current generation index. `allowed`: one bit per token, 32 in a word; empty:
  // all. When it and `banned` leave no token, the result is an error.
  Result<TokenId> sample(std::span<const float> logits, std::span<const TokenId> banned,
                         SamplerScratch& scratch,
                         std::span<const std::uint32_t> allowed = {}) const;
  // How many of the first candidates decide sample(); 0: more than a shortlist holds, or an edit of
  // too many logits would be needed.
  int num_deciding() const;
  // Steps 2 to 5 as edits; `banned` as in sample().
  std::vector<backend::LogitEdit> edits(std::span<const TokenId> banned) const;
  // As sample(), from num_deciding() candidates of the edited row. `constrained`: not all tokens
  // were allowed.
  Result<TokenId> sample_first(const backend::Shortlist& shortlist, bool constrained,
                               SamplerScratch& scratch) const;
  // True when sample() would give the largest logit, ties to the lower id, if no token is banned
  // and all are allowed.
  bool takes_largest() const;
  // A token was generated (sampled here, or elsewhere and fed again).
  void accept(TokenId id);

  std::uint64_t index() const { return index_; }

 private:
  bool adjusts() const;
  bool is_greedy() const;
  void adjust(std::span<float> values) const;
  // The rest of step 6, and 7 and 8, from the candidates in `scratch`: at least one, in order, and
  // at most top_k.
  TokenId pick(SamplerScratch& scratch) const;

  SamplingParams params_;
  bool repeats_bias_ = false;         // a token has more than one bias
  std::unordered_set<TokenId> seen_;  // prompt and output; only with a repetition penalty
  std::unordered_map<TokenId, std::int32_t> counts_;  // of the output
  std::uint64_t index_ = 0;
};

// ok when every logit is finite; else kModelFault with the first offender.
Status check_finite(std::span<const float> logits);

}  // namespace flotilla::sampling
