#include "flotilla/sampling/logprobs.h"

#include <algorithm>
#include <array>
#include <limits>

#include "flotilla/sampling/candidates.h"
#include "flotilla/sampling/exact_math.h"

namespace flotilla::sampling {

RowLogprobs row_logprobs(std::span<const float> logits, TokenId chosen, int num_top,
                         SamplerScratch& scratch) {
  const double largest = logits[index_of_largest(logits)];
  std::array<double, 16> lanes{};
  for (std::size_t i = 0; i < logits.size(); ++i) lanes[i % 16] += exact_exp(logits[i] - largest);
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  const double log_sum = exact_log(lanes[0]);
  const auto logprob = [&](float value) {
    return std::max(kLogprobFloor, (value - largest) - log_sum);
  };
  RowLogprobs out;
  out.chosen = logprob(logits[static_cast<std::size_t>(chosen)]);
  if (num_top > 0) {
    collect_candidates(logits, -std::numeric_limits<double>::infinity(), num_top, scratch);
    for (const auto& candidate : scratch.candidates) {
      out.top.emplace_back(candidate.id, logprob(candidate.value));
    }
  }
  return out;
}

}  // namespace flotilla::sampling
