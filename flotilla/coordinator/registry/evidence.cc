#include "flotilla/coordinator/registry/evidence.h"

#include <algorithm>
#include <bit>

namespace flotilla::coordinator {
namespace {

constexpr double kWeight = 1.0 / 3;

std::size_t length_class(std::int64_t tokens, std::size_t most) {
  const auto bits = static_cast<int>(
      std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(tokens, 1))));
  const int at = (bits - 5) / 2;  // 64 tokens are seven bits
  return at <= 0 ? 0 : std::min(static_cast<std::size_t>(at), most);
}

}  // namespace

void Evidence::add(double measured, Clock::Instant now) {
  value = count == 0 ? measured : value + kWeight * (measured - value);
  at = now;
  ++count;
}

void PrefillSpeed::add(std::int64_t tokens, double seconds, Clock::Instant now) {
  if (tokens <= 0 || seconds <= 0) return;
  per_token_[length_class(tokens, kLengths - 1)].add(seconds / static_cast<double>(tokens), now);
}

std::optional<PrefillSpeed::Estimate> PrefillSpeed::seconds(std::int64_t tokens,
                                                            Clock::Instant now) const {
  const std::size_t wanted = length_class(tokens, kLengths - 1);
  const Evidence* best = nullptr;
  std::size_t best_distance = 0;
  for (std::size_t i = 0; i < kLengths; ++i) {
    const Evidence& one = per_token_[i];
    if (!one.known()) continue;
    // A stale one is farther away than any fresh one.
    const std::size_t distance =
        (i > wanted ? i - wanted : wanted - i) + (one.fresh(now) ? 0 : kLengths);
    if (best != nullptr && distance >= best_distance) continue;
    best = &one;
    best_distance = distance;
  }
  if (best == nullptr) return std::nullopt;
  return Estimate{best->value * static_cast<double>(tokens), best->at};
}

}  // namespace flotilla::coordinator
