// Jobs that an earlier run of the server left open: settled from what nodes report of them, or
// refunded.
//
// Charged is what the client surely got: of a stream the tokens that were marked as handed over,
// and no more than its nodes say that they sent. When a node reports that it finished the job,
// nothing is left to wait for; else the time to report must be over. What was not streamed gave its
// client nothing and is refunded at once, and so is what was never marked, or what nobody
// remembers.
#pragma once

#include <chrono>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/money/bank.h"
#include "flotilla/protocol/messages.h"

namespace flotilla::coordinator {

// Core strand only.
class Recovery {
 public:
  // Everything must outlive it.
  Recovery(Bank& bank, const Clock& clock, std::chrono::seconds patience);

  bool done() const { return jobs_.empty(); }
  std::size_t num_open() const { return jobs_.size(); }
  // What a node that has joined is asked, in messages that are not too long: of the jobs that were
  // given to it. Of others it is not believed.
  std::vector<protocol::Recall> questions(const ProviderId& node) const;
  void on_report(const ProviderId& node, const protocol::Recalled& report);
  // Ends what has waited long enough.
  void tick();

 private:
  struct Open {
    // What one attempt gave, as its node reports it.
    struct Part {
      ProviderId node;
      std::uint32_t attempt = 0;
      std::uint64_t first = 0, end = 0;  // token indices
    };
    OpenJob job;
    std::vector<Part> parts;
    bool finished = false;
  };
  void settle(Open& open);

  Bank& bank_;
  const Clock& clock_;
  const Clock::Instant deadline_;
  std::unordered_map<JobId, Open> jobs_;
};

}  // namespace flotilla::coordinator
