#include "flotilla/coordinator/routing/prefix_table.h"

#include <algorithm>

namespace flotilla::coordinator {

void PrefixTable::note(std::uint64_t prefix, const ProviderId& provider, std::int64_t tokens,
                       Clock::Instant now) {
  if (tokens <= 0) return;
  auto at = entries_.find(prefix);
  if (at == entries_.end()) {
    while (!order_.empty() && entries_.size() >= limits_.max_entries) {
      entries_.erase(order_.front());
      order_.pop_front();
    }
    at = entries_.emplace(prefix, Entry{}).first;
    at->second.place = order_.insert(order_.end(), prefix);
  } else {
    order_.splice(order_.end(), order_, at->second.place);
  }
  auto& holders = at->second.holders;
  auto mine = std::find_if(holders.begin(), holders.end(), [&](const Holder& holder) {
    return holder.tokens > 0 && holder.provider == provider;
  });
  if (mine == holders.end()) {
    mine = std::min_element(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) {
      return std::pair(a.tokens > 0, a.at) < std::pair(b.tokens > 0, b.at);
    });
  }
  *mine = {provider, tokens, now};
}

void PrefixTable::forget(std::uint64_t prefix, const ProviderId& provider) {
  const auto at = entries_.find(prefix);
  if (at == entries_.end()) return;
  for (Holder& holder : at->second.holders) {
    if (holder.provider == provider) holder.tokens = 0;
  }
}

}  // namespace flotilla::coordinator
