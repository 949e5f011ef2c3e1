#include "flotilla/grammar/value_writer.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <string>

#include "flotilla/grammar/numbers.h"
#include "flotilla/grammar/regex.h"

namespace flotilla::grammar {
namespace bj = boost::json;
namespace {

constexpr std::string_view kShortEscapes = "\"\\/bfnrt";

// What follows the backslash of the short escape of `byte`; 0 when there is none.
char short_escape(int byte) {
  switch (byte) {
    case '"':
    case '\\':
      return static_cast<char>(byte);
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

void add_hex(AutomatonBuilder& b, StateId from, StateId to) {
  b.add_bytes(from, '0', '9', to);
  b.add_bytes(from, 'a', 'f', to);
  b.add_bytes(from, 'A', 'F', to);
}

std::string number_text(const bj::value& value) {
  if (value.is_int64()) return std::to_string(value.get_int64());
  if (value.is_uint64()) return std::to_string(value.get_uint64());
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, value.get_double());
  return std::string(buffer, written.ptr);
}

// Keys that the reader of calls takes as they are.
bool is_bare_key(std::string_view name) {
  if (name.empty() || name.size() > 100) return false;
  for (const char c : name) {
    const bool plain = static_cast<unsigned char>(c) > 0x20 && c != 0x7f &&
                       std::string_view(",{}[]():=\"'`<>;").find(c) == std::string_view::npos;
    if (!plain) return false;
  }
  return true;
}

}  // namespace

void ValueWriter::open_quote(StateId from, StateId to) {
  if (quote_) {
    b_.add_control(from, *quote_, to);
  } else {
    b_.add_byte(from, '"', to);
  }
}

void ValueWriter::optional_blank(StateId from, StateId to) {
  b_.add_empty(from, to);
  if (is_json()) b_.add_byte(from, ' ', to);
}

void ValueWriter::comma(StateId from, StateId to) {
  const StateId behind = b_.add_state();
  b_.add_byte(from, ',', behind);
  optional_blank(behind, to);
}

void ValueWriter::text(std::string_view text, StateId from, StateId to) {
  if (is_json()) {
    const std::string quoted = bj::serialize(bj::string_view(text.data(), text.size()));
    return b_.add_literal(from, quoted, to);
  }
  const StateId opened = b_.add_state(), end = b_.add_state();
  open_quote(from, opened);
  b_.add_literal(opened, text, end);
  close_quote(end, to);
}

void ValueWriter::literal(const bj::value& value, StateId from, StateId to) {
  if (b_.overflowed()) return;
  if (value.is_string()) {
    return text({value.get_string().data(), value.get_string().size()}, from, to);
  }
  if (value.is_number()) return b_.add_literal(from, number_text(value), to);
  if (value.is_null()) return b_.add_literal(from, "null", to);
  if (value.is_bool()) return b_.add_literal(from, value.get_bool() ? "true" : "false", to);
  StateId at = b_.add_state();
  b_.add_byte(from, value.is_array() ? '[' : '{', at);
  bool first = true;
  const auto separate = [&] {
    if (first) {
      first = false;
      return;
    }
    const StateId next = b_.add_state();
    comma(at, next);
    at = next;
  };
  if (value.is_array()) {
    for (const bj::value& item : value.get_array()) {
      separate();
      const StateId next = b_.add_state();
      literal(item, at, next);
      at = next;
    }
    return b_.add_byte(at, ']', to);
  }
  for (const auto& member : value.get_object()) {
    separate();
    const StateId behind = b_.add_state(), next = b_.add_state();
    key({member.key().data(), member.key().size()}, at, behind);
    literal(member.value(), behind, next);
    at = next;
  }
  b_.add_byte(at, '}', to);
}

std::vector<StateId> ValueWriter::character(StateId body, StateId next, bool unicode_escapes) {
  std::vector<StateId> made;
  const auto state = [&] { return made.emplace_back(b_.add_state()); };
  const StateId c1 = state(), c2 = state(), c3 = state();  // so many continuation bytes to come
  b_.add_bytes(c1, 0x80, 0xbf, next);
  b_.add_bytes(c2, 0x80, 0xbf, c1);
  b_.add_bytes(c3, 0x80, 0xbf, c2);
  const StateId e0 = state(), ed = state(), f0 = state(), f4 = state();
  b_.add_bytes(e0, 0xa0, 0xbf, c1);
  b_.add_bytes(ed, 0x80, 0x9f, c1);
  b_.add_bytes(f0, 0x90, 0xbf, c2);
  b_.add_bytes(f4, 0x80, 0x8f, c2);
  b_.add_bytes(body, 0xc2, 0xdf, c1);
  b_.add_bytes(body, 0xe0, 0xe0, e0);
  b_.add_bytes(body, 0xe1, 0xec, c2);
  b_.add_bytes(body, 0xed, 0xed, ed);
  b_.add_bytes(body, 0xee, 0xef, c2);
  b_.add_bytes(body, 0xf0, 0xf0, f0);
  b_.add_bytes(body, 0xf1, 0xf3, c3);
  b_.add_bytes(body, 0xf4, 0xf4, f4);
  if (!is_json()) {
    b_.add_bytes(body, '\t', '\n', next);
    b_.add_bytes(body, 0x20, 0x7e, next);
    return made;
  }
  b_.add_bytes(body, 0x20, 0x21, next);
  b_.add_bytes(body, 0x23, 0x5b, next);
  b_.add_bytes(body, 0x5d, 0x7f, next);
  const StateId escape = state();
  b_.add_byte(body, '\\', escape);
  for (const char c : kShortEscapes) b_.add_byte(escape, c, next);
  if (unicode_escapes) {
    const StateId u = b_.add_state();
    b_.add_byte(escape, 'u', u);
    unicode_escape(u, next);
  }
  return made;
}

// Four hexadecimal digits; a high surrogate only with its low one.
void ValueWriter::unicode_escape(StateId from, StateId to) {
  const StateId x3 = b_.add_state(), x2 = b_.add_state(), x1 = b_.add_state();
  add_hex(b_, x3, x2);
  add_hex(b_, x2, x1);
  add_hex(b_, x1, to);
  b_.add_bytes(from, '0', '9', x3);
  for (const char base : {'a', 'A'}) {
    const auto c = [base](int i) { return static_cast<std::uint8_t>(base + i); };
    b_.add_bytes(from, c(0), c(2), x3);
    b_.add_bytes(from, c(4), c(5), x3);
  }
  const StateId d = b_.add_state(), h2 = b_.add_state(), h1 = b_.add_state();
  b_.add_byte(from, 'd', d);
  b_.add_byte(from, 'D', d);
  b_.add_bytes(d, '0', '7', x2);
  b_.add_bytes(d, '8', '9', h2);
  b_.add_bytes(d, 'a', 'b', h2);
  b_.add_bytes(d, 'A', 'B', h2);
  const StateId backslash = b_.add_state(), u = b_.add_state(), low = b_.add_state(),
                low_d = b_.add_state();
  add_hex(b_, h2, h1);
  add_hex(b_, h1, backslash);
  b_.add_byte(backslash, '\\', u);
  b_.add_byte(u, 'u', low);
  b_.add_byte(low, 'd', low_d);
  b_.add_byte(low, 'D', low_d);
  b_.add_bytes(low_d, 'c', 'f', x2);
  b_.add_bytes(low_d, 'C', 'F', x2);
}

RuleId ValueWriter::free_body() {
  if (!free_body_) {
    const StateId body = b_.add_state(), end = b_.add_state();
    character(body, body, true);
    close_quote(body, end);
    b_.mark_end(end);
    free_body_ = b_.add_rule(body);
  }
  return *free_body_;
}

RuleId ValueWriter::body_up_to(std::uint64_t max) {
  if (bodies_.empty()) {
    bodies_end_ = b_.add_state();
    b_.mark_end(bodies_end_);
  }
  while (bodies_.size() <= max && !b_.overflowed()) {
    const auto level = static_cast<std::uint32_t>(bodies_.size());
    const StateId body = b_.add_state();
    close_quote(body, bodies_end_);
    if (level > 0) {
      const std::vector<StateId> inner = character(body, bodies_.back(), false);
      if (families_.empty()) {
        for (std::size_t i = 0; i <= inner.size(); ++i) families_.push_back(b_.add_family());
        b_.set_family(bodies_[0], families_[0], 0);
      }
      b_.set_family(body, families_[0], level);
      for (std::size_t i = 0; i < inner.size(); ++i) {
        b_.set_family(inner[i], families_[i + 1], level - 1);
      }
    }
    bodies_.push_back(body);
    body_rules_.emplace_back();
  }
  if (b_.overflowed()) return 0;
  std::optional<RuleId>& rule = body_rules_[max];
  if (!rule) rule = b_.add_rule(bodies_[max]);
  return *rule;
}

void ValueWriter::string(std::uint64_t min, std::uint64_t max, StateId from, StateId to) {
  StateId at = b_.add_state();
  open_quote(from, at);
  for (std::uint64_t i = 0; i < min && !b_.overflowed(); ++i) {
    const StateId next = b_.add_state();
    character(at, next, false);
    at = next;
  }
  b_.add_call(at, max == kNoMaximum ? free_body() : body_up_to(max - min), to);
}

void ValueWriter::string_of(const Dfa& dfa, StateId from, StateId to) {
  std::vector<StateId> states(dfa.arcs.size());
  for (StateId& s : states) s = b_.add_state();
  open_quote(from, states[0]);
  for (std::size_t s = 0; s < dfa.arcs.size() && !b_.overflowed(); ++s) {
    if (dfa.accepts[s] != 0) close_quote(states[s], to);
    std::optional<StateId> escape;
    for (const Dfa::Arc& arc : dfa.arcs[s]) {
      const StateId target = states[arc.target];
      const auto raw = [&](int first, int last) {
        const int lo = std::max<int>(arc.lo, first), hi = std::min<int>(arc.hi, last);
        if (lo <= hi) {
          b_.add_bytes(states[s], static_cast<std::uint8_t>(lo), static_cast<std::uint8_t>(hi),
                       target);
        }
      };
      if (!is_json()) {
        raw('\t', '\n');
        raw(0x20, 0x7e);
        raw(0x80, 0xff);
        continue;
      }
      raw(0x20, 0x21);
      raw(0x23, 0x5b);
      raw(0x5d, 0xff);
      for (int byte = arc.lo; byte <= std::min<int>(arc.hi, '\\'); ++byte) {
        const char mark = short_escape(byte);
        if (mark == 0) continue;
        if (!escape) {
          escape = b_.add_state();
          b_.add_byte(states[s], '\\', *escape);
        }
        b_.add_byte(*escape, mark, target);
      }
    }
  }
}

bool ValueWriter::key(std::string_view name, StateId from, StateId to) {
  const StateId colon = b_.add_state(), behind = b_.add_state();
  if (is_json()) {
    text(name, from, colon);
  } else {
    if (!is_bare_key(name)) return false;
    b_.add_literal(from, name, colon);
  }
  b_.add_byte(colon, ':', behind);
  optional_blank(behind, to);
  return true;
}

Status ValueWriter::key_of(const Dfa& dfa, StateId from, StateId to) {
  const StateId colon = b_.add_state(), behind = b_.add_state();
  if (is_json()) {
    string_of(dfa, from, colon);
  } else {
    FLOTILLA_TRY(const Dfa bare, regex_to_dfa("[A-Za-z_][A-Za-z0-9_-]{0,31}", RegexMode::kWhole));
    FLOTILLA_TRY(const Dfa both, combine(bare, dfa, Combination::kBoth));
    both.emit(b_, from, colon);
  }
  b_.add_byte(colon, ':', behind);
  optional_blank(behind, to);
  return ok_status();
}

RuleId ValueWriter::any_value(int depth) {
  if (const auto it = any_values_.find(depth); it != any_values_.end()) return it->second;
  const StateId start = b_.add_state(), end = b_.add_state();
  const RuleId rule = b_.add_rule(start);
  any_values_.emplace(depth, rule);
  b_.mark_end(end);
  for (const std::string_view word : {"null", "true", "false"}) b_.add_literal(start, word, end);
  static_cast<void>(emit_number(b_, {}, start, end));  // without bounds it cannot fail
  string(0, kNoMaximum, start, end);
  if (depth > 0) {
    b_.add_call(start, any_object(depth), end);
    const StateId opened = b_.add_state(), item = b_.add_state(), behind = b_.add_state();
    b_.add_byte(start, '[', opened);
    b_.add_byte(opened, ']', end);
    b_.add_empty(opened, item);
    b_.add_call(item, any_value(depth - 1), behind);
    comma(behind, item);
    b_.add_byte(behind, ']', end);
  }
  return rule;
}

RuleId ValueWriter::any_object(int depth) {
  if (const auto it = any_objects_.find(depth); it != any_objects_.end()) return it->second;
  const StateId start = b_.add_state(), opened = b_.add_state(), end = b_.add_state();
  const RuleId rule = b_.add_rule(start);
  any_objects_.emplace(depth, rule);
  b_.mark_end(end);
  b_.add_byte(start, '{', opened);
  members(depth, opened, end);
  return rule;
}

void ValueWriter::members(int depth, StateId from, StateId to) {
  const StateId name = b_.add_state(), value = b_.add_state(), behind = b_.add_state();
  b_.add_byte(from, '}', to);
  b_.add_empty(from, name);
  const StateId colon = b_.add_state();
  if (is_json()) {
    const StateId spaced = b_.add_state();
    string(0, kNoMaximum, name, colon);
    b_.add_byte(colon, ':', spaced);
    optional_blank(spaced, value);
  } else {
    static_cast<void>(
        emit_regex(b_, "[A-Za-z_][A-Za-z0-9_-]{0,31}", RegexMode::kWhole, name, colon));
    b_.add_byte(colon, ':', value);
  }
  b_.add_call(value, any_value(depth - 1), behind);
  comma(behind, name);
  b_.add_byte(behind, '}', to);
}

}  // namespace flotilla::grammar
