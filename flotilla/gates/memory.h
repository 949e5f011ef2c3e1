// Memory of machines and models: what may be used, what a model needs. One set of formulas for the
// router, the planner of loads and the node itself. Bytes everywhere.
#pragma once

#include <cstdint>
#include <optional>

#include "flotilla/gates/state_cost.h"

namespace flotilla::gates {

inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kSystemBytes = 2 * kGiB;       // left to the system at least
inline constexpr std::uint64_t kDefaultWorkspace = 3 * kGiB;  // until a model's own is measured
inline constexpr std::uint64_t kMinStateBytes = kGiB;  // with less a large model is not worth it

// What all models together may take of a machine: 90 % of it, and 2 GiB less than it at least.
std::uint64_t usable_memory(std::uint64_t physical_bytes);

// What is known about a model's size; 0: unknown.
struct ModelSize {
  std::uint64_t listed_bytes = 0;      // as the catalog lists it: no header was read
  std::uint64_t weight_bytes = 0;      // read from the headers
  std::uint64_t resident_bytes = 0;    // weights and workspace, as the loader counts them
  std::uint64_t min_memory_bytes = 0;  // the smallest machine that the catalog allows
};

// The catalog's size of a model of which a part stays on disk: `override_gb` (10^9 bytes) in place
// of its bytes on disk. nullopt for what is no positive number: such a value is ignored.
std::optional<std::uint64_t> resident_override(double override_gb);

// Weights as they lie in memory; a size that nobody has read is padded by a fifth.
std::uint64_t weights_in_memory(const ModelSize& size);
// Free memory without which the model is not loaded: weights, workspace, and some state: 1 GiB, but
// not more than its weights or its longest sequence. 0: unknown.
std::uint64_t need_to_load(const ModelSize& size, const StateCost& cost = {},
                           std::int64_t context_length = 0);
// The smallest machine on which the model can ever be loaded, as machines report their memory; 0:
// any. The catalog's word counts before all arithmetic, less the sixteenth that firmware and kernel
// may keep. Of a model that is only listed, two GiB are wanted for each 10^9 bytes.
std::uint64_t smallest_machine(const ModelSize& size);

// The longest sequence that finds room beside the weights on a machine that has nothing else.
std::int64_t cold_tokens(const ModelSize& size, const StateCost& cost,
                         std::uint64_t physical_bytes);

}  // namespace flotilla::gates
