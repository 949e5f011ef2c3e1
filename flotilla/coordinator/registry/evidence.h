// Numbers that were measured, and when: what is expected of a node rests on them, and on how old
// they are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "flotilla/base/clock.h"

namespace flotilla::coordinator {

// Evidence older than that counts only where there is nothing else.
inline constexpr std::chrono::minutes kFreshFor{10};

// A moving average; the last value counts a third.
struct Evidence {
  double value = 0;
  Clock::Instant at{};  // of the last value
  std::uint32_t count = 0;

  void add(double measured, Clock::Instant now);
  bool known() const { return count > 0; }
  bool fresh(Clock::Instant now) const { return known() && now - at < kFreshFor; }
};

// How fast a node reads prompts of a model, by their length: short ones cost more per token.
class PrefillSpeed {
 public:
  void add(std::int64_t tokens, double seconds, Clock::Instant now);
  struct Estimate {
    double seconds = 0;
    Clock::Instant at{};
  };
  // For `tokens`, by the nearest length that was measured, fresh ones first; nullopt: never.
  std::optional<Estimate> seconds(std::int64_t tokens, Clock::Instant now) const;

 private:
  static constexpr std::size_t kLengths = 7;  // below 64, 256, 1024, ... tokens
  std::array<Evidence, kLengths> per_token_;
};

// What is remembered of a model on a machine, also over its connections.
struct ModelHistory {
  PrefillSpeed prefill;
  Evidence load_seconds;
  Evidence job_seconds;  // from start to finish
};

}  // namespace flotilla::coordinator
