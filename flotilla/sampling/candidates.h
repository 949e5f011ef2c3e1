// Selecting and ordering entries of a row without sorting all of it.
#pragma once

#include <cstddef>
#include <span>

#include "flotilla/sampling/sampler.h"

namespace flotilla::sampling {

// Weights below exp(-kLargestGap) of the largest are not candidates. Even with every token of a
// vocabulary of a million just below, they would share 1e-8 of the probability.
inline constexpr double kLargestGap = 32.0;

// The lowest index among the largest values.
std::size_t index_of_largest(std::span<const float> values);

// Fills scratch.candidates with the entries of at least `threshold`, in the order (value
// descending, id ascending); with `limit` > 0 only the first so many.
void collect_candidates(std::span<const float> values, double threshold, int limit,
                        SamplerScratch& scratch);

}  // namespace flotilla::sampling
