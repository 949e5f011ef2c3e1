#include "flotilla/coordinator/gateway/fair_queue.h"

#include <algorithm>

namespace flotilla::coordinator {

void FairQueue::push(const JobId& job, Key key) {
  auto at = lane_of_.find(key);
  if (at == lane_of_.end()) {
    lanes_.push_back({key, {}});
    at = lane_of_.emplace(key, std::prev(lanes_.end())).first;
  }
  at->second->jobs.push_back(job);
  ++size_;
}

void FairQueue::push_urgent(const JobId& job) {
  urgent_.push_back(job);
  ++size_;
}

void FairQueue::erase(const JobId& job, Key key) {
  size_ -= std::erase(urgent_, job);
  const auto at = lane_of_.find(key);
  if (at == lane_of_.end()) return;
  size_ -= std::erase(at->second->jobs, job);
  if (!at->second->jobs.empty()) return;
  lanes_.erase(at->second);
  lane_of_.erase(at);
}

bool FairQueue::offer(const std::function<bool(const JobId&)>& take) {
  if (const auto taken = std::find_if(urgent_.begin(), urgent_.end(), std::ref(take));
      taken != urgent_.end()) {
    urgent_.erase(taken);
    --size_;
    return true;
  }
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    const auto taken = std::find_if(lane->jobs.begin(), lane->jobs.end(), std::ref(take));
    if (taken == lane->jobs.end()) continue;
    lane->jobs.erase(taken);
    --size_;
    if (lane->jobs.empty()) {
      lane_of_.erase(lane->key);
      lanes_.erase(lane);
    } else {
      lanes_.splice(lanes_.end(), lanes_, lane);
    }
    return true;
  }
  return false;
}

std::optional<JobId> FairQueue::to_displace_for(Key key) const {
  const auto own = lane_of_.find(key);
  const std::size_t num_own = own == lane_of_.end() ? 0 : own->second->jobs.size();
  const auto largest =
      std::max_element(lanes_.begin(), lanes_.end(),
                       [](const Lane& a, const Lane& b) { return a.jobs.size() < b.jobs.size(); });
  if (largest == lanes_.end() || largest->jobs.size() < num_own + 2) return std::nullopt;
  return largest->jobs.back();
}

}  // namespace flotilla::coordinator
