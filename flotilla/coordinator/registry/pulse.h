// When a node that has work was last heard, and whether it is overdue.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "flotilla/base/clock.h"

namespace flotilla::coordinator {

// Core strand only.
class Pulse {
 public:
  // Nothing was expected before: the node has been given its first job.
  void start(Clock::Instant now);
  // Any frame is a sign of life.
  void note(Clock::Instant now);
  // Longer than max(1 s, 5 times the median of the last gaps) without a sign; before the first sign
  // after start() it has 2 s.
  bool overdue(Clock::Instant now) const;
  Clock::Instant last() const { return last_; }

 private:
  std::chrono::milliseconds limit() const;

  static constexpr std::size_t kKept = 15;
  Clock::Instant last_{};
  bool heard_ = false;
  std::array<std::uint16_t, kKept> gaps_{};  // ms
  std::size_t num_gaps_ = 0;                 // ever
};

}  // namespace flotilla::coordinator
