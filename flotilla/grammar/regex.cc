#include "flotilla/grammar/regex.h"

#include <limits>
#include <string>

namespace flotilla::grammar {
namespace {

constexpr std::uint32_t kNoMaximum = std::numeric_limits<std::uint32_t>::max();
constexpr int kMaxNesting = 100;
constexpr std::size_t kMaxRegexStates = 100'000;

// Reads and emits at once: every part is added between two states. A repeated part is read again
// for every copy, which keeps the reader free of a tree.
class RegexEmitter {
 public:
  RegexEmitter(AutomatonBuilder& builder, std::string_view pattern, RegexMode mode)
      : b_(builder), text_(pattern), mode_(mode) {}

  Status run(StateId from, StateId to) {
    FLOTILLA_TRY_STATUS(alternatives(from, to, 0, true));
    if (at_ < text_.size()) return bad(at_, "a ) without its (");
    return ok_status();
  }

 private:
  Error bad(std::size_t at, const std::string& what) const {
    return Error{ErrorCode::kInvalidArgument, what + " at byte " + std::to_string(at)};
  }
  bool is(char c) const { return at_ < text_.size() && text_[at_] == c; }

  Status alternatives(StateId from, StateId to, int depth, bool outermost) {
    if (depth > kMaxNesting) return bad(at_, "groups nested too deeply");
    while (true) {
      FLOTILLA_TRY_STATUS(sequence(from, to, depth, outermost));
      if (!is('|')) return ok_status();
      ++at_;
    }
  }

  void any_run(StateId state) { b_.add_code_points(state, 0, 0x10ffff, state); }

  Status sequence(StateId from, StateId to, int depth, bool outermost) {
    StateId at = b_.add_state();
    b_.add_empty(from, at);
    bool begins = false;
    while (is('^')) {
      if (!outermost) return bad(at_, "^ inside a group is not supported");
      begins = true;
      ++at_;
    }
    if (outermost && !begins && mode_ == RegexMode::kSearch) any_run(at);
    bool ends = false;
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
      if (is('$')) {
        if (!outermost) return bad(at_, "$ inside a group is not supported");
        ends = true;
        ++at_;
        continue;
      }
      if (ends) return bad(at_, "$ is supported at the end only");
      if (is('^')) return bad(at_, "^ is supported at the start only");
      const StateId next = b_.add_state();
      FLOTILLA_TRY_STATUS(repeated(at, next, depth));
      at = next;
      if (b_.overflowed() || b_.num_states() > kMaxRegexStates) {
        return Error{ErrorCode::kTooLarge, "the pattern is too large: more than " +
                                               std::to_string(kMaxRegexStates) + " states"};
      }
    }
    if (outermost && !ends && mode_ == RegexMode::kSearch) {
      const StateId tail = b_.add_state();
      b_.add_empty(at, tail);
      any_run(tail);
      at = tail;
    }
    b_.add_empty(at, to);
    return ok_status();
  }

  Status repeated(StateId from, StateId to, int depth) {
    const std::size_t start = at_;
    const StateId first_from = b_.add_state(), first_to = b_.add_state();
    FLOTILLA_TRY_STATUS(atom(first_from, first_to, depth));
    std::uint32_t min = 1, max = 1;
    FLOTILLA_TRY_STATUS(quantifier(min, max));
    const std::size_t behind = at_;
    // Copy after copy; those beyond `min` may be left out; without maximum the last one loops.
    if (max == 0) {
      b_.add_empty(from, to);
      return ok_status();
    }
    b_.add_empty(from, first_from);
    if (min == 0) b_.add_empty(from, to);
    StateId at = first_to;
    const std::uint32_t copies = max == kNoMaximum ? std::max<std::uint32_t>(min, 1) : max;
    StateId last_from = first_from;
    for (std::uint32_t i = 1; i < copies; ++i) {
      if (i >= min) b_.add_empty(at, to);
      const StateId next = b_.add_state();
      last_from = at;
      at_ = start;
      FLOTILLA_TRY_STATUS(atom(at, next, depth));
      at = next;
      if (b_.overflowed() || b_.num_states() > kMaxRegexStates) {
        return Error{ErrorCode::kTooLarge, "the pattern is too large: more than " +
                                               std::to_string(kMaxRegexStates) + " states"};
      }
    }
    at_ = behind;
    if (max == kNoMaximum) b_.add_empty(at, last_from);
    b_.add_empty(at, to);
    return ok_status();
  }

  Status quantifier(std::uint32_t& min, std::uint32_t& max) {
    if (is('*')) {
      min = 0;
      max = kNoMaximum;
      ++at_;
    } else if (is('+')) {
      max = kNoMaximum;
      ++at_;
    } else if (is('?')) {
      min = 0;
      ++at_;
    } else if (is('{')) {
      FLOTILLA_TRY_STATUS(counts(min, max));
    } else {
      return ok_status();
    }
    if (is('?')) ++at_;  // lazy: the same texts
    if (is('*') || is('+') || is('?') || is('{')) return bad(at_, "nothing to repeat");
    return ok_status();
  }

  Status counts(std::uint32_t& min, std::uint32_t& max) {
    const std::size_t start = at_++;
    const auto number = [&](std::uint32_t& value) {
      const std::size_t first = at_;
      value = 0;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        value = std::min<std::uint32_t>(value * 10 + static_cast<std::uint32_t>(text_[at_] - '0'),
                                        1'000'000);
      }
      return at_ > first;
    };
    if (!number(min)) return bad(start, "malformed {}");
    max = min;
    if (is(',')) {
      ++at_;
      if (!number(max)) max = kNoMaximum;
    }
    if (!is('}')) return bad(start, "malformed {}");
    ++at_;
    if (max < min) return bad(start, "{} in the wrong order");
    if (min > kMaxRepeat || (max != kNoMaximum && max > kMaxRepeat)) {
      return bad(start, "a repetition above the limit of " + std::to_string(kMaxRepeat));
    }
    return ok_status();
  }

  Status atom(StateId from, StateId to, int depth) {
    const char c = text_[at_];
    if (c == '(') return group(from, to, depth);
    if (c == '*' || c == '+' || c == '?' || c == '{') return bad(at_, "nothing to repeat");
    CodePointSet set;
    if (c == '[') {
      FLOTILLA_TRY(set, read_class(text_, at_));
    } else if (c == '\\') {
      ++at_;
      FLOTILLA_TRY(set, read_escape(text_, at_, false));
    } else if (c == '.') {
      ++at_;
      for (const char32_t end : {U'\n', U'\r', U'\u2028', U'\u2029'}) set.add(end, end);
      set.negate();
    } else {
      FLOTILLA_TRY(const char32_t literal, read_character(text_, at_));
      set.add(literal, literal);
    }
    set.emit(b_, from, to);
    return ok_status();
  }

  Status group(StateId from, StateId to, int depth) {
    const std::size_t start = at_++;
    if (is('?')) {
      const std::string_view rest = text_.substr(at_);
      if (rest.starts_with("?:")) {
        at_ += 2;
      } else if (rest.starts_with("?=") || rest.starts_with("?!")) {
        return bad(start, "look-ahead is not supported");
      } else if (rest.starts_with("?<=") || rest.starts_with("?<!")) {
        return bad(start, "look-behind is not supported");
      } else if (rest.starts_with("?<") || rest.starts_with("?P<")) {
        const std::size_t close = rest.find('>');
        if (close == std::string_view::npos) return bad(start, "a group's name without its >");
        at_ += close + 1;
      } else {
        return bad(start, "this kind of group is not supported");
      }
    }
    FLOTILLA_TRY_STATUS(alternatives(from, to, depth + 1, false));
    if (!is(')')) return bad(start, "a ( without its )");
    ++at_;
    return ok_status();
  }

  AutomatonBuilder& b_;
  const std::string_view text_;
  const RegexMode mode_;
  std::size_t at_ = 0;
};

}  // namespace

Status emit_regex(AutomatonBuilder& builder, std::string_view pattern, RegexMode mode, StateId from,
                  StateId to) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error{ErrorCode::kTooLarge, "the pattern has " + std::to_string(pattern.size()) +
                                           " bytes; the limit is " +
                                           std::to_string(kMaxPatternBytes)};
  }
  return RegexEmitter(builder, pattern, mode).run(from, to);
}

Result<Dfa> regex_to_dfa(std::string_view pattern, RegexMode mode) {
  AutomatonBuilder builder;
  const StateId from = builder.add_state(), to = builder.add_state();
  FLOTILLA_TRY_STATUS(emit_regex(builder, pattern, mode, from, to));
  return Dfa::from(builder, from, to);
}

}  // namespace flotilla::grammar
