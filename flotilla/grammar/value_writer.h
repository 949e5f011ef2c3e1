// How values are written: as JSON, or as arguments in the notation of a model's tool calls. Emits
// into an automaton; parts that many places need (strings, any value) become shared rules.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/grammar/automaton.h"
#include "flotilla/grammar/dfa.h"

namespace flotilla::grammar {

// JSON is written compactly; one blank may follow a colon or comma. No other blanks, so that there
// is no way to go on for ever without saying anything.
//
// In Gemma 4's calls strings stand between quote tokens, without escapes, keys are bare, and there
// are no blanks.
class ValueWriter {
 public:
  static ValueWriter json(AutomatonBuilder& builder) { return ValueWriter(builder, std::nullopt); }
  static ValueWriter gemma4(AutomatonBuilder& builder, TokenId quote) {
    return ValueWriter(builder, quote);
  }

  static constexpr std::uint64_t kMaxStringLength = 16'384;  // as a limit that can be enforced
  static constexpr int kFreeDepth = 8;  // nesting of values that no schema describes

  bool is_json() const { return !quote_; }

  void literal(const boost::json::value& value, StateId from, StateId to);
  void text(std::string_view text, StateId from, StateId to);
  // A string of min to max characters; max: kNoMaximum for any number.
  static constexpr std::uint64_t kNoMaximum = ~std::uint64_t{0};
  void string(std::uint64_t min, std::uint64_t max, StateId from, StateId to);
  // A string whose value is one of `dfa`. JSON writes control characters only where it has short
  // escapes for them.
  void string_of(const Dfa& dfa, StateId from, StateId to);
  // A key with its colon; false when the notation cannot write it.
  bool key(std::string_view name, StateId from, StateId to);
  Status key_of(const Dfa& dfa, StateId from, StateId to);
  void comma(StateId from, StateId to);

  // Any value, or any object, nested up to kFreeDepth.
  RuleId any_value() { return any_value(kFreeDepth); }
  RuleId any_object() { return any_object(kFreeDepth); }

 private:
  ValueWriter(AutomatonBuilder& builder, std::optional<TokenId> quote)
      : b_(builder), quote_(quote) {}

  void open_quote(StateId from, StateId to);
  void close_quote(StateId from, StateId to) { open_quote(from, to); }
  void optional_blank(StateId from, StateId to);
  // One character of a string from `body` to `next`; the states in between in a fixed order.
  std::vector<StateId> character(StateId body, StateId next, bool unicode_escapes);
  void unicode_escape(StateId from, StateId to);
  RuleId body_up_to(std::uint64_t max);  // the rest of a string, with its closing quote
  RuleId free_body();
  RuleId any_value(int depth);
  RuleId any_object(int depth);
  void members(int depth, StateId from, StateId to);

  AutomatonBuilder& b_;
  const std::optional<TokenId> quote_;
  std::vector<StateId> bodies_;  // by how many characters may follow
  std::vector<std::optional<RuleId>> body_rules_;
  std::vector<std::uint32_t> families_;
  StateId bodies_end_ = 0;
  std::optional<RuleId> free_body_;
  std::map<int, RuleId> any_values_, any_objects_;
};

}  // namespace flotilla::grammar
