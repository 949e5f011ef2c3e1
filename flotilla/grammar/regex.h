// The regular expressions of constraints: those of ECMAScript less what no automaton can do.
//
//   literals, \n \t \r \f \v \0 \xHH \uHHHH \u{H...} \cX, escaped punctuation
//   .  [...]  [^...]  \d \D \w \W \s \S          (. excludes line ends; \d and \w are ASCII)
//   (...) (?:...) (?<name>...)  |  * + ? {m} {m,} {m,n}, each with a ? behind that changes nothing
//   ^ at the start and $ at the end of an alternative
//
// Refused by name: back references, look-ahead and look-behind, \b, \B, \p, anchors elsewhere.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/grammar/automaton.h"
#include "flotilla/grammar/dfa.h"

namespace flotilla::grammar {

inline constexpr std::size_t kMaxPatternBytes = 16'384;
inline constexpr std::uint32_t kMaxRepeat = 2'000;

// kWhole: the expression is the text (anchors change nothing). kSearch: the text contains a match,
// as `pattern` of JSON schema means it.
enum class RegexMode { kWhole, kSearch };

// Adds the texts of `pattern`, in UTF-8, between two states. Errors name the place in the pattern.
Status emit_regex(AutomatonBuilder& builder, std::string_view pattern, RegexMode mode, StateId from,
                  StateId to);
Result<Dfa> regex_to_dfa(std::string_view pattern, RegexMode mode);

// Code points as sorted ranges.
class CodePointSet {
 public:
  void add(char32_t first, char32_t last) { ranges_.emplace_back(first, last); }
  void add(const CodePointSet& other) {
    ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  }
  void negate();
  char32_t only() const { return ranges_.front().first; }  // of a set of one
  void emit(AutomatonBuilder& builder, StateId from, StateId to);

 private:
  void normalise();
  std::vector<std::pair<char32_t, char32_t>> ranges_;
};

// Reads "[...]" or an escape of a class or character at `at`, which moves behind it. Shared with
// the EBNF.
Result<CodePointSet> read_class(std::string_view text, std::size_t& at);
Result<CodePointSet> read_escape(std::string_view text, std::size_t& at, bool in_class);
// The UTF-8 character at `at`, which moves behind it; kInvalidArgument when there is none.
Result<char32_t> read_character(std::string_view text, std::size_t& at);

}  // namespace flotilla::grammar
