// How many nodes may begin to join per second: after a restart of the coordinator a whole fleet
// comes back, and clients must not wait behind it. Nodes that are put off try again with jitter.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "flotilla/base/clock.h"

namespace flotilla::coordinator {

struct JoinRates {
  double per_second = 400, burst = 800;
  // One address may not use up what is there for all.
  double per_second_of_address = 50, burst_of_address = 100;
  std::size_t max_addresses = 4'096;
};

// One thread at a time.
class JoinLimiter {
 public:
  explicit JoinLimiter(JoinRates rates = {}) : rates_(rates), all_{rates.burst, {}} {}
  // `peer` is "address:port".
  bool admit(std::string_view peer, Clock::Instant now);

 private:
  struct Bucket {
    double tokens = 0;
    Clock::Instant filled{};
    void fill(double rate, double burst, Clock::Instant now);
  };
  const JoinRates rates_;
  Bucket all_;
  std::unordered_map<std::string, Bucket> addresses_;
};

}  // namespace flotilla::coordinator
