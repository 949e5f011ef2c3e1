// Finds stop strings in text that arrives in pieces. The match that is complete first in the text
// wins; of several complete at the same byte the longest. So the result never depends on how the
// text was cut. Text that may still become a stop string is held back; the rest is released at
// once.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace flotilla::engine {

class StopMatcher {
 public:
  // `include_match`: the stop string itself is released too. Empty stop strings are ignored.
  StopMatcher(std::vector<std::string> stops, bool include_match);
  StopMatcher(const StopMatcher&) = delete;
  StopMatcher& operator=(const StopMatcher&) = delete;

  // Takes the next piece and returns the text that is now certain to precede every match. After a
  // match the rest of the piece and everything later is swallowed.
  std::string push(std::string_view text);

  // Nothing more will come that could complete a match: returns what is held back.
  std::string flush();

  bool matched() const { return matched_ != nullptr; }
  // The stop string that ended the text; empty before a match.
  std::string_view match() const {
    return matched_ == nullptr ? std::string_view{} : std::string_view(matched_->text);
  }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::size_t> fallback;  // length of the longest border of each prefix
    std::size_t state = 0;              // length of the prefix that the text ends with
  };
  static std::size_t next_state(const Pattern& pattern, char c);

  std::vector<Pattern> patterns_;
  bool include_match_;
  std::string held_;  // always a proper prefix of some pattern, or empty
  const Pattern* matched_ = nullptr;
};

}  // namespace flotilla::engine
