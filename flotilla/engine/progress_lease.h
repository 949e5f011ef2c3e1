// How long a request may make no progress. There is no limit on the whole: an answer that moves
// may take as long as it takes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "flotilla/base/clock.h"
#include "flotilla/base/error.h"

namespace flotilla::engine {

// 0: no limit.
struct LeaseOptions {
  std::chrono::milliseconds admission{120'000};    // in the queue, at first and after a preemption
  std::chrono::milliseconds prefill{120'000};      // without a further token of the prompt
  std::chrono::milliseconds decode{120'000};       // without a further token of the answer
  std::chrono::milliseconds slow_reader{120'000};  // with a reader that takes nothing
  std::chrono::milliseconds first_token{0};        // from submission; of a job that says nothing
};

enum class Phase { kWaiting, kPrefill, kDecode, kReaderFull };

// Of one request. Not thread-safe.
class ProgressLease {
 public:
  // `first_token`: limit of this request; 0: none.
  ProgressLease(Clock::Instant now, std::chrono::milliseconds first_token);

  // Where the request is now. Any change of `phase` or `progress` is progress.
  void observe(Phase phase, std::int64_t progress, bool has_token, Clock::Instant now);
  // When it is given up if nothing moves.
  std::optional<Clock::Instant> ends(const LeaseOptions& options) const;
  // What to tell when it has ended.
  Error reason(const LeaseOptions& options, Clock::Instant now) const;

 private:
  std::chrono::milliseconds limit(const LeaseOptions& options) const;
  bool first_token_is_due(Clock::Instant now) const;

  Clock::Instant submitted_;
  std::chrono::milliseconds first_token_;
  Phase phase_ = Phase::kWaiting;
  std::int64_t progress_ = 0;
  bool has_token_ = false;
  Clock::Instant since_;
};

}  // namespace flotilla::engine
