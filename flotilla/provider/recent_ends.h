// How attempts ended that were started here lately: a coordinator that was restarted asks.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "flotilla/protocol/messages.h"

namespace flotilla::provider {

// One thread. Keeps a bounded number; the oldest are forgotten.
class RecentEnds {
 public:
  explicit RecentEnds(std::size_t capacity) : capacity_(capacity) {}

  // An attempt told twice has ended as it was told last.
  void note(protocol::AttemptEnd end);
  std::vector<protocol::AttemptEnd> of(const std::vector<std::string>& jobs) const;

 private:
  const std::size_t capacity_;
  std::unordered_map<std::string, std::vector<protocol::AttemptEnd>> by_job_;
  std::deque<std::string> order_;  // jobs, oldest first; one entry per attempt
};

}  // namespace flotilla::provider
