// The jobs of one model that wait for a node. Those that had a node and lost it go first, in order;
// after them the keys take turns, so that many requests of one do not hold up another's few.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <unordered_map>

#include "flotilla/base/ids.h"

namespace flotilla::coordinator {

// Core strand only.
class FairQueue {
 public:
  using Key = std::uint64_t;  // an API key

  void push(const JobId& job, Key key);
  void push_urgent(const JobId& job);
  void erase(const JobId& job, Key key);  // nothing when it is not there
  // Offers jobs in the order of their turn until one is taken; that one leaves the queue and its
  // key waits for its next turn. False when none was. `take` must not change the queue.
  bool offer(const std::function<bool(const JobId&)>& take);
  // Where the queue is full: the newest job of the key that has most, if it has at least two more
  // than `key`, which then deserves the place more.
  std::optional<JobId> to_displace_for(Key key) const;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  struct Lane {
    Key key = 0;
    std::deque<JobId> jobs;
  };
  std::deque<JobId> urgent_;
  std::list<Lane> lanes_;  // none empty; the first one's turn is next
  std::unordered_map<Key, std::list<Lane>::iterator> lane_of_;
  std::size_t size_ = 0;
};

}  // namespace flotilla::coordinator
