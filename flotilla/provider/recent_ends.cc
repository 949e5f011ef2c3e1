#include "flotilla/provider/recent_ends.h"

namespace flotilla::provider {

void RecentEnds::note(protocol::AttemptEnd end) {
  auto& ends = by_job_[end.job];
  for (protocol::AttemptEnd& known : ends) {
    if (known.attempt != end.attempt) continue;
    known = std::move(end);
    return;
  }
  order_.push_back(end.job);
  ends.push_back(std::move(end));
  if (order_.size() <= capacity_) return;
  const auto oldest = by_job_.find(order_.front());
  order_.pop_front();
  oldest->second.erase(oldest->second.begin());
  if (oldest->second.empty()) by_job_.erase(oldest);
}

std::vector<protocol::AttemptEnd> RecentEnds::of(const std::vector<std::string>& jobs) const {
  std::vector<protocol::AttemptEnd> out;
  for (const std::string& job : jobs) {
    const auto found = by_job_.find(job);
    if (found == by_job_.end()) continue;
    out.insert(out.end(), found->second.begin(), found->second.end());
  }
  return out;
}

}  // namespace flotilla::provider
