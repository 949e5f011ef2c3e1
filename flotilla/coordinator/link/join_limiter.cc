#include "flotilla/coordinator/link/join_limiter.h"

#include <algorithm>

namespace flotilla::coordinator {

void JoinLimiter::Bucket::fill(double rate, double burst, Clock::Instant now) {
  const double seconds = std::chrono::duration<double>(now - filled).count();
  tokens = std::min(burst, tokens + std::max(0.0, seconds) * rate);
  filled = now;
}

bool JoinLimiter::admit(std::string_view peer, Clock::Instant now) {
  const std::string address(peer.substr(0, peer.rfind(':')));
  auto at = addresses_.find(address);
  if (at == addresses_.end()) {
    if (addresses_.size() >= rates_.max_addresses) {
      // A bucket that is full again says nothing.
      std::erase_if(addresses_, [&](const auto& entry) {
        Bucket bucket = entry.second;
        bucket.fill(rates_.per_second_of_address, rates_.burst_of_address, now);
        return bucket.tokens >= rates_.burst_of_address;
      });
      if (addresses_.size() >= rates_.max_addresses) return false;
    }
    at = addresses_.emplace(address, Bucket{rates_.burst_of_address, now}).first;
  }
  Bucket& own = at->second;
  own.fill(rates_.per_second_of_address, rates_.burst_of_address, now);
  all_.fill(rates_.per_second, rates_.burst, now);
  if (own.tokens < 1 || all_.tokens < 1) return false;
  own.tokens -= 1;
  all_.tokens -= 1;
  return true;
}

}  // namespace flotilla::coordinator
