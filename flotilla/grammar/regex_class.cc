#include <algorithm>

#include "flotilla/base/text.h"
#include "flotilla/grammar/regex.h"

namespace flotilla::grammar {
namespace {

Error bad(std::size_t at, std::string what) {
  return Error{ErrorCode::kInvalidArgument, what + " at byte " + std::to_string(at)};
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

CodePointSet single(char32_t c) {
  CodePointSet set;
  set.add(c, c);
  return set;
}

CodePointSet digits() {
  CodePointSet set;
  set.add('0', '9');
  return set;
}

CodePointSet word() {
  CodePointSet set = digits();
  set.add('a', 'z');
  set.add('A', 'Z');
  set.add('_', '_');
  return set;
}

CodePointSet space() {
  CodePointSet set;
  set.add('\t', '\r');
  for (const char32_t c : {U' ', U'\u00a0', U'\u1680', U'\u2028', U'\u2029', U'\u202f', U'\u205f',
                           U'\u3000', U'\ufeff'}) {
    set.add(c, c);
  }
  set.add(0x2000, 0x200a);
  return set;
}

// `\uHHHH`, also a surrogate pair, and `\u{...}`; `at` is behind the u.
Result<char32_t> read_unicode(std::string_view text, std::size_t& at) {
  const auto fixed = [&](std::size_t count) -> int {
    if (at + count > text.size()) return -1;
    int value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const int digit = hex_digit(text[at + i]);
      if (digit < 0) return -1;
      value = value * 16 + digit;
    }
    at += count;
    return value;
  };
  if (at < text.size() && text[at] == '{') {
    std::size_t end = at + 1;
    char32_t value = 0;
    for (; end < text.size() && hex_digit(text[end]) >= 0 && end - at <= 8; ++end) {
      value = value * 16 + static_cast<char32_t>(hex_digit(text[end]));
    }
    if (end >= text.size() || text[end] != '}' || end == at + 1) return bad(at, "malformed \\u");
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) {
      return bad(at, "\\u is no character");
    }
    at = end + 1;
    return value;
  }
  int value = fixed(4);
  if (value < 0) return bad(at, "malformed \\u");
  if (value >= 0xd800 && value <= 0xdbff && text.substr(at).starts_with("\\u")) {
    at += 2;
    const int low = fixed(4);
    if (low < 0xdc00 || low > 0xdfff) return bad(at, "half a surrogate pair");
    value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
  } else if (value >= 0xd800 && value <= 0xdfff) {
    return bad(at, "half a surrogate pair");
  }
  return static_cast<char32_t>(value);
}

}  // namespace

void CodePointSet::normalise() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<std::pair<char32_t, char32_t>> out;
  for (const auto& [first, last] : ranges_) {
    if (!out.empty() && first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, last);
    } else {
      out.emplace_back(first, last);
    }
  }
  ranges_ = std::move(out);
}

void CodePointSet::negate() {
  normalise();
  std::vector<std::pair<char32_t, char32_t>> out;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= 0x10ffff) out.emplace_back(next, 0x10ffff);
  ranges_ = std::move(out);
}

void CodePointSet::emit(AutomatonBuilder& builder, StateId from, StateId to) {
  normalise();
  for (const auto& [first, last] : ranges_) builder.add_code_points(from, first, last, to);
}

Result<char32_t> read_character(std::string_view text, std::size_t& at) {
  if (at >= text.size()) return bad(at, "unexpected end");
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  const std::string_view bytes = text.substr(at, length);
  if (bytes.size() < length || !is_valid_utf8(bytes)) return bad(at, "invalid UTF-8");
  char32_t c = length == 1 ? lead : lead & (0x7f >> length);
  for (std::size_t i = 1; i < length; ++i) {
    c = (c << 6) | (static_cast<unsigned char>(bytes[i]) & 0x3f);
  }
  at += length;
  return c;
}

// `at` is behind the backslash.
Result<CodePointSet> read_escape(std::string_view text, std::size_t& at, bool in_class) {
  if (at >= text.size()) return bad(at, "a backslash at the end");
  const std::size_t start = at - 1;
  const char c = text[at++];
  CodePointSet set;
  switch (c) {
    case 'd':
    case 'D':
      set = digits();
      if (c == 'D') set.negate();
      return set;
    case 'w':
    case 'W':
      set = word();
      if (c == 'W') set.negate();
      return set;
    case 's':
    case 'S':
      set = space();
      if (c == 'S') set.negate();
      return set;
    case 'n':
      return single('\n');
    case 't':
      return single('\t');
    case 'r':
      return single('\r');
    case 'f':
      return single('\f');
    case 'v':
      return single('\v');
    case 'x': {
      if (at + 2 > text.size() || hex_digit(text[at]) < 0 || hex_digit(text[at + 1]) < 0) {
        return bad(start, "malformed \\x");
      }
      const int value = hex_digit(text[at]) * 16 + hex_digit(text[at + 1]);
      at += 2;
      return single(static_cast<char32_t>(value));
    }
    case 'u': {
      FLOTILLA_TRY(const char32_t value, read_unicode(text, at));
      return single(value);
    }
    case 'c': {
      if (at >= text.size() ||
          !((text[at] >= 'a' && text[at] <= 'z') || (text[at] >= 'A' && text[at] <= 'Z'))) {
        return bad(start, "malformed \\c");
      }
      return single(static_cast<char32_t>(text[at++] & 0x1f));
    }
    case 'b':
      if (in_class) return single('\b');
      [[fallthrough]];
    case 'B':
      return bad(start, "word boundaries (\\b, \\B) are not supported");
    case 'p':
    case 'P':
      return bad(start, "Unicode properties (\\p, \\P) are not supported");
    case 'k':
      return bad(start, "back references are not supported");
    case '0':
      if (at < text.size() && text[at] >= '0' && text[at] <= '9') {
        return bad(start, "octal escapes are not supported");
      }
      return single(0);
    default:
      break;
  }
  if (c >= '1' && c <= '9') return bad(start, "back references are not supported");
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
    return bad(start, std::string("unknown escape \\") + c);
  }
  --at;
  FLOTILLA_TRY(const char32_t literal, read_character(text, at));
  return single(literal);
}

Result<CodePointSet> read_class(std::string_view text, std::size_t& at) {
  const std::size_t start = at++;
  CodePointSet set;
  bool negated = false;
  if (at < text.size() && text[at] == '^') {
    negated = true;
    ++at;
  }
  // A member: a character, or a class, which cannot begin or end a range.
  struct Member {
    CodePointSet set;
    char32_t c = 0;
    bool is_character = false;
  };
  const auto member = [&]() -> Result<Member> {
    if (text[at] != '\\') {
      FLOTILLA_TRY(const char32_t c, read_character(text, at));
      return Member{single(c), c, true};
    }
    ++at;
    const bool is_class =
        at < text.size() && std::string_view("dDwWsS").find(text[at]) != std::string_view::npos;
    FLOTILLA_TRY(CodePointSet escaped, read_escape(text, at, true));
    Member out{std::move(escaped), 0, !is_class};
    if (!is_class) out.c = out.set.only();
    return out;
  };
  while (true) {
    if (at >= text.size()) return bad(start, "a class without its ]");
    if (text[at] == ']') break;
    FLOTILLA_TRY(Member low, member());
    if (at + 1 < text.size() && text[at] == '-' && text[at + 1] != ']') {
      ++at;
      FLOTILLA_TRY(const Member high, member());
      if (!low.is_character || !high.is_character) {
        set.add(low.set);
        set.add(high.set);
        set.add('-', '-');
        continue;
      }
      if (high.c < low.c) return bad(start, "a range in the wrong order");
      set.add(low.c, high.c);
    } else {
      set.add(low.set);
    }
  }
  ++at;
  if (negated) set.negate();
  return set;
}

}  // namespace flotilla::grammar
