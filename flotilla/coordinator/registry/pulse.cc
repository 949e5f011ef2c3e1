#include "flotilla/coordinator/registry/pulse.h"

#include <algorithm>

namespace flotilla::coordinator {

using std::chrono::milliseconds;

namespace {
constexpr milliseconds kBurst{20};  // frames of one step come together: no gap is between them
constexpr milliseconds kFirstSign{2'000};
constexpr milliseconds kShortest{1'000}, kLongest{10'000};
}  // namespace

void Pulse::start(Clock::Instant now) {
  last_ = now;
  heard_ = false;
}

void Pulse::note(Clock::Instant now) {
  const auto gap = std::chrono::duration_cast<milliseconds>(now - last_);
  if (heard_ && gap >= kBurst) {
    gaps_[num_gaps_++ % kKept] = static_cast<std::uint16_t>(std::min(gap, kLongest).count());
  }
  last_ = now;
  heard_ = true;
}

bool Pulse::overdue(Clock::Instant now) const {
  const auto silence = now - last_;
  return silence >= kShortest && silence >= limit();
}

milliseconds Pulse::limit() const {
  if (!heard_) return kFirstSign;
  const std::size_t n = std::min(num_gaps_, kKept);
  if (n == 0) return kShortest;
  std::array<std::uint16_t, kKept> sorted = gaps_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(n / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(n));
  return std::clamp(milliseconds(5 * *middle), kShortest, kLongest);
}

}  // namespace flotilla::coordinator
