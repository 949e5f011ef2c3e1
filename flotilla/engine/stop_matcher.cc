#include "flotilla/engine/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace flotilla::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_match)
    : include_match_(include_match) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    Pattern pattern;
    pattern.fallback.assign(stop.size() + 1, 0);
    for (std::size_t i = 1, border = 0; i < stop.size(); ++i) {
      while (border > 0 && stop[i] != stop[border]) border = pattern.fallback[border];
      if (stop[i] == stop[border]) ++border;
      pattern.fallback[i + 1] = border;
    }
    pattern.text = std::move(stop);
    patterns_.push_back(std::move(pattern));
  }
}

std::size_t StopMatcher::next_state(const Pattern& pattern, char c) {
  std::size_t state = pattern.state;
  while (state > 0 && pattern.text[state] != c) state = pattern.fallback[state];
  return pattern.text[state] == c ? state + 1 : 0;
}

std::string StopMatcher::push(std::string_view text) {
  if (matched()) return {};
  if (patterns_.empty()) return std::string(text);
  std::string pending = std::move(held_);
  held_.clear();
  pending.reserve(pending.size() + text.size());
  std::size_t longest = 0;
  for (const char c : text) {
    pending.push_back(c);
    longest = 0;
    for (Pattern& pattern : patterns_) {
      pattern.state = next_state(pattern, c);
      longest = std::max(longest, pattern.state);
      const bool complete = pattern.state == pattern.text.size();
      if (complete && (matched_ == nullptr || pattern.text.size() > matched_->text.size())) {
        matched_ = &pattern;
      }
    }
    if (matched()) {
      if (!include_match_) pending.erase(pending.size() - matched_->text.size());
      return pending;
    }
  }
  if (text.empty()) longest = pending.size();
  held_ = pending.substr(pending.size() - longest);
  pending.erase(pending.size() - longest);
  return pending;
}

std::string StopMatcher::flush() {
  for (Pattern& pattern : patterns_) pattern.state = 0;
  return std::exchange(held_, {});
}

}  // namespace flotilla::engine
