#include "flotilla/engine/progress_lease.h"

#include <algorithm>
#include <string>

namespace flotilla::engine {

using std::chrono::milliseconds;

ProgressLease::ProgressLease(Clock::Instant now, milliseconds first_token)
    : submitted_(now), first_token_(first_token), since_(now) {}

void ProgressLease::observe(Phase phase, std::int64_t progress, bool has_token,
                            Clock::Instant now) {
  has_token_ = has_token_ || has_token;
  if (phase == phase_ && progress == progress_) return;
  phase_ = phase;
  progress_ = progress;
  since_ = now;
}

milliseconds ProgressLease::limit(const LeaseOptions& options) const {
  switch (phase_) {
    case Phase::kWaiting:
      return options.admission;
    case Phase::kPrefill:
      return options.prefill;
    case Phase::kDecode:
      return options.decode;
    case Phase::kReaderFull:
      return options.slow_reader;
  }
  return milliseconds(0);
}

std::optional<Clock::Instant> ProgressLease::ends(const LeaseOptions& options) const {
  std::optional<Clock::Instant> end;
  if (const milliseconds most = limit(options); most.count() > 0) end = since_ + most;
  if (!has_token_ && first_token_.count() > 0) {
    end = std::min(end.value_or(Clock::Instant::max()), submitted_ + first_token_);
  }
  return end;
}

bool ProgressLease::first_token_is_due(Clock::Instant now) const {
  return !has_token_ && first_token_.count() > 0 && now >= submitted_ + first_token_;
}

Error ProgressLease::reason(const LeaseOptions& options, Clock::Instant now) const {
  const auto for_ms = [](milliseconds time) { return std::to_string(time.count()) + " ms"; };
  if (first_token_is_due(now)) {
    return {ErrorCode::kDeadlineExceeded, "no token within " + for_ms(first_token_)};
  }
  const std::string time = for_ms(limit(options));
  switch (phase_) {
    case Phase::kWaiting:  // overload: the same request may do better later or elsewhere
      return {ErrorCode::kResourceExhausted, "the request waited for its turn for " + time};
    case Phase::kPrefill:
      return {ErrorCode::kDeadlineExceeded, "the prompt made no progress for " + time};
    case Phase::kDecode:
      return {ErrorCode::kDeadlineExceeded, "the answer made no progress for " + time};
    case Phase::kReaderFull:
      break;
  }
  return {ErrorCode::kDeadlineExceeded, "the reader took nothing for " + time};
}

}  // namespace flotilla::engine
