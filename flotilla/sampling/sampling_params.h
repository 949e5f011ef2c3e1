// How the next token is chosen. Ranges are checked by api/ before a request gets here.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"

namespace flotilla::sampling {

struct SamplingParams {
  double temperature = 1.0;  // below 1e-6: greedy
  double top_p = 1.0;
  int top_k = 0;  // 0: off
  double min_p = 0.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;
  std::vector<std::pair<TokenId, double>> logit_bias = {};
  std::uint64_t seed = 0;    // fixed at admission, never absent here
  std::uint32_t choice = 0;  // index of the choice when a client asks for several
};

inline constexpr double kGreedyTemperature = 1e-6;  // below: the most likely token, always
inline constexpr std::size_t kMaxLogitBias = 1024;

// The ranges once more, for jobs that did not come through api/. `vocab_size` 0: not known. Errors
// name the parameter and the limit.
Status validate(const SamplingParams& params, std::int64_t vocab_size);

}  // namespace flotilla::sampling
