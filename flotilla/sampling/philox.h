// Philox4x32-10 (Salmon et al., SC 2011): a counter-based generator. The same key and counter give
// the same numbers on every machine, in any order, without state.
#pragma once

#include <array>
#include <cstdint>

namespace flotilla::sampling {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// The number in [0, 1) that chooses generated token `index` of a choice: 53 bits of the block with
// key (seed low, seed high) and counter (index low, index high, choice, 0).
double uniform(std::uint64_t seed, std::uint32_t choice, std::uint64_t index);

}  // namespace flotilla::sampling
