#include "flotilla/provider/backoff.h"

#include <algorithm>

namespace flotilla::provider {

std::chrono::milliseconds Backoff::next(std::chrono::milliseconds lasted) {
  using std::chrono::milliseconds;
  const auto uniform = [&](milliseconds low, milliseconds high) {
    return milliseconds(std::uniform_int_distribution<std::int64_t>(
        low.count(), std::max(low, high).count())(random_));
  };
  const bool was_stable = lasted >= options_.stable_after;
  if (was_stable) num_failures_ = 0;
  const milliseconds window =
      std::min(options_.max, options_.base * (std::int64_t{1} << std::min(num_failures_, 20)));
  ++num_failures_;
  milliseconds wait = uniform(window / 2, window);
  if (was_stable) wait += uniform(milliseconds(0), options_.herd);
  return wait;
}

}  // namespace flotilla::provider
