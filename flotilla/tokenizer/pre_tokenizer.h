// The pre-tokenizer of tokenizer.json: cuts normalized text into the words that the model encodes
// one by one.
#pragma once

#include <boost/json/fwd.hpp>
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/tokenizer/matcher.h"

namespace flotilla::tokenizer {

struct Piece {
  std::string_view text;
  bool at_start = false;  // begins where the whole input begins
};

// Working memory of one encode(). Pieces point into the input or into `texts`.
struct PieceBuffer {
  std::vector<Piece> pieces;
  std::vector<Piece> next;
  std::vector<Match> matches;
  std::deque<std::string> texts;
};

// Immutable; safe from any thread.
class PreTokenizer {
 public:
  PreTokenizer() = default;  // one word
  static Result<PreTokenizer> parse(const boost::json::value* value);

  // Replaces the pieces in the buffer by their words. No word is empty.
  Status run(PieceBuffer& buffer, MatchBudget& budget) const;
  // The last step maps bytes to the byte-level alphabet. run() leaves that to the model: its words
  // are plain text.
  bool ends_in_byte_level() const { return ends_in_byte_level_; }

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class CharSet { kSpaces, kNumbers, kPunctuation, kOne };
  struct SplitPattern {
    Matcher pattern;
    Behavior behavior;
    bool invert;
  };
  struct SplitChars {
    CharSet set;
    Behavior behavior;
    char32_t one = 0;  // for kOne
  };
  struct Words {};  // runs of \w and runs of other non-spaces
  struct PrependSpace {};
  struct MapBytes {};
  struct Metaspace {
    enum class Prepend { kAlways, kFirst, kNever };
    std::string replacement;
    Prepend prepend = Prepend::kAlways;
    bool split = true;
  };
  struct FixedLength {
    std::size_t length;
  };
  using Step =
      std::variant<SplitPattern, SplitChars, Words, PrependSpace, MapBytes, Metaspace, FixedLength>;

  static Status parse_into(const boost::json::value& value, const std::string& where, int depth,
                           std::vector<Step>& steps);
  static Result<Behavior> parse_behavior(const std::string& name, const std::string& where);
  static void split(const Piece& piece, std::vector<Match>& matches, Behavior behavior,
                    std::vector<Piece>& out);
  static void apply(const SplitChars& step, const Piece& piece, PieceBuffer& buffer);
  static void apply(const Words& step, const Piece& piece, PieceBuffer& buffer);
  static void apply(const Metaspace& step, Piece piece, PieceBuffer& buffer);
  static void apply(const FixedLength& step, const Piece& piece, PieceBuffer& buffer);

  std::vector<Step> steps_;
  bool ends_in_byte_level_ = false;
};

}  // namespace flotilla::tokenizer
