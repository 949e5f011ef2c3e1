#include "flotilla/gates/memory.h"

#include <algorithm>
#include <cmath>

namespace flotilla::gates {
namespace {

// In integers, so that every compiler gets the same verdict.
constexpr std::uint64_t padded(std::uint64_t bytes) { return bytes + bytes / 5; }

constexpr double kMostGigabytes = 1e9;  // beyond any machine

}  // namespace

std::uint64_t usable_memory(std::uint64_t physical_bytes) {
  const std::uint64_t less = physical_bytes - std::min(physical_bytes, kSystemBytes);
  return std::min(physical_bytes / 10 * 9, less);
}

std::optional<std::uint64_t> resident_override(double override_gb) {
  if (!std::isfinite(override_gb) || override_gb <= 0 || override_gb > kMostGigabytes)
    return std::nullopt;
  const double bytes = std::round(override_gb * 1e9);
  if (bytes < 1) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t weights_in_memory(const ModelSize& size) {
  return size.weight_bytes > 0 ? size.weight_bytes : padded(size.listed_bytes);
}

std::uint64_t need_to_load(const ModelSize& size, const StateCost& cost,
                           std::int64_t context_length) {
  const std::uint64_t weights = weights_in_memory(size);
  if (weights == 0 && size.resident_bytes == 0) return 0;
  std::uint64_t state =
      std::min(kMinStateBytes, size.resident_bytes > 0 ? size.resident_bytes : weights);
  if (cost.known() && context_length > 0) state = std::min(state, cost.bytes(context_length));
  if (size.resident_bytes > 0) return size.resident_bytes + state;
  return weights + kDefaultWorkspace + state;
}

std::uint64_t smallest_machine(const ModelSize& size) {
  if (size.min_memory_bytes > 0) return size.min_memory_bytes - size.min_memory_bytes / 16;
  const bool only_listed = size.weight_bytes == 0 && size.resident_bytes == 0;
  if (!only_listed) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(size.listed_bytes) / 1e9 * 2 *
                                    static_cast<double>(kGiB));
}

std::int64_t cold_tokens(const ModelSize& size, const StateCost& cost,
                         std::uint64_t physical_bytes) {
  const std::uint64_t taken =
      size.resident_bytes > 0 ? size.resident_bytes : weights_in_memory(size) + kDefaultWorkspace;
  const std::uint64_t usable = usable_memory(physical_bytes);
  return taken >= usable ? 0 : tokens_in(cost, usable - taken);
}

}  // namespace flotilla::gates
