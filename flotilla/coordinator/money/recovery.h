// Jobs that an earlier run of the server left open: settled from what nodes report of them, or
// refunded.
//
// A job that its node finished is settled whole: its client had the end of it before the settlement
// could be lost. Of the others the server cannot know how much of its last words arrived; nodes
// know what they sent. What was streamed is charged as far as the longest report goes, once the
// time to report is over; what was not streamed gave its client nothing and is refunded, and so is
// what nobody remembers.
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
    TokenCounts tokens;
    bool finished = false;
  };
  void settle(Open& open);

  Bank& bank_;
  const Clock& clock_;
  const Clock::Instant deadline_;
  std::unordered_map<JobId, Open> jobs_;
};

}  // namespace flotilla::coordinator
