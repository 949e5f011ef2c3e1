// Finds the matches of a string or a regular expression in a text, as the reference's iterator
// does: left to right, not overlapping, no empty match directly behind the previous match.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/tokenizer/scanners.h"

namespace flotilla::tokenizer {

struct Match {
  std::size_t begin;
  std::size_t end;
  bool is_match;  // else the text between two matches
};

// What one call of encode() may spend on patterns of a file; owned by one thread.
struct MatchBudget {
  std::chrono::nanoseconds left = std::chrono::seconds(5);
};

// Immutable; safe from any thread.
class Matcher {
 public:
  static Matcher literal(std::string text);
  // Known patterns are matched by hand-written scanners in linear time, others by PCRE2 under
  // limits: then errors of find_all() are kResourceExhausted and name the pattern. Errors here: a
  // pattern that is wrong or not supported.
  static Result<Matcher> regex(const std::string& pattern);
  // As regex(), but never a hand-written scanner. For tests.
  static Result<Matcher> generic_regex(const std::string& pattern);

  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();

  // Appends pieces that cover `text` (well-formed UTF-8) without gaps, in order.
  Status find_all(std::string_view text, std::vector<Match>& out, MatchBudget& budget) const;
  bool has_scanner() const { return scanner_ != nullptr; }
  // The text of a literal matcher, else empty.
  const std::string& literal_text() const { return literal_; }

 private:
  struct Program;  // a compiled PCRE2 pattern
  Matcher();
  Status find_regex(std::string_view text, std::vector<Match>& out, MatchBudget& budget) const;

  std::string literal_;
  Scanner scanner_ = nullptr;
  std::unique_ptr<Program> program_;
};

}  // namespace flotilla::tokenizer
