// Log-probabilities of a row as the model gives it: before bias, penalties, temperature and
// truncation.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/sampling/sampler.h"

namespace flotilla::sampling {

inline constexpr double kLogprobFloor = -9999.0;  // JSON has no -infinity

struct RowLogprobs {
  double chosen = 0;
  std::vector<std::pair<TokenId, double>> top;  // most likely first, ties to the lower id
};

// `logits` must be finite. The normaliser is summed in 16 lanes (index mod 16), the lanes as a
// tree.
RowLogprobs row_logprobs(std::span<const float> logits, TokenId chosen, int num_top,
                         SamplerScratch& scratch);

}  // namespace flotilla::sampling
