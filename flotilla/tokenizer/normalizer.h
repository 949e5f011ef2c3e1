// The normalizer of tokenizer.json: rewrites the text before it is split.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/tokenizer/matcher.h"

namespace flotilla::tokenizer {

// A text with the provenance of each byte.
struct NormalizedText {
  std::string text;
  // One '\1' (trusted) or '\0' for each byte of text; empty when provenance does not matter. A
  // character made from several others is trusted when all of them are.
  std::string trust;
  // Characters at the front were removed, so the text no longer begins where the input began.
  bool lost_front = false;
};

// Immutable; safe from any thread.
class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  // `value` may be nullptr (absent).
  static Result<Normalizer> parse(const boost::json::value* value);

  bool is_identity() const { return steps_.empty(); }
  Status run(NormalizedText& text, MatchBudget& budget) const;

 private:
  struct Replace {
    Matcher pattern;
    std::string content;
  };
  struct Prepend {
    std::string text;
  };
  struct Compose {  // NFC, NFD, NFKC, NFKD
    bool compatible = false;
    bool compose = false;
  };
  struct Lowercase {};
  struct Strip {
    bool left = false;
    bool right = false;
  };
  struct StripAccents {};
  struct ByteLevel {};
  struct Nmt {};
  using Step =
      std::variant<Replace, Prepend, Compose, Lowercase, Strip, StripAccents, ByteLevel, Nmt>;

  static Status parse_into(const boost::json::value& value, const std::string& where, int depth,
                           std::vector<Step>& steps);
  static Status apply(const Replace& step, NormalizedText& text, MatchBudget& budget);
  static void apply(const Prepend& step, NormalizedText& text);
  static void apply(const Strip& step, NormalizedText& text);

  std::vector<Step> steps_;
};

}  // namespace flotilla::tokenizer
