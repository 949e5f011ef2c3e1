#include "flotilla/tokenizer/regex_syntax.h"

#include <array>
#include <cstdio>
#include <utility>
#include <vector>

namespace flotilla::tokenizer {
namespace {

// The contents of bracket expressions. White space is the property White_Space; PCRE2's \s also has
// U+180E.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNonSpaces =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
// \w: alphabetic, marks, decimal digits, connectors, and the superscripts and fractions of Latin-1.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})"
    R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kHex = "0-9A-Fa-f";
constexpr std::string_view kNonHex = R"(\x{0}-\x{2F}\x{3A}-\x{40}\x{47}-\x{60}\x{67}-\x{10FFFF})";

struct NamedSet {
  std::string_view name;
  std::string_view set;
};
// POSIX brackets and the properties of the same names.
constexpr std::array kNamedSets = {
    NamedSet{"alpha", R"(\p{L}\p{Nl}\p{Alphabetic})"},
    NamedSet{"alnum", R"(\p{L}\p{Nl}\p{Alphabetic}\p{Nd})"},
    NamedSet{"blank", R"(\p{Zs}\x{9})"},
    NamedSet{"cntrl", R"(\p{Cc})"},
    NamedSet{"digit", R"(\p{Nd})"},
    NamedSet{"lower", R"(\p{Lowercase})"},
    NamedSet{"upper", R"(\p{Uppercase})"},
    NamedSet{"punct", R"(\p{P}$+<=>^`|~)"},
    NamedSet{"space", kSpaces},
    NamedSet{"word", kWord},
    NamedSet{"xdigit", kHex},
    NamedSet{"ascii", R"(\x{0}-\x{7F})"},
    NamedSet{"any", R"(\x{0}-\x{10FFFF})"},
};

std::string loose(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    result += (c >= 'A' && c <= 'Z') ? static_cast<char>(c + 32) : c;
  }
  return result;
}
const NamedSet* named_set(std::string_view name) {
  const std::string key = loose(name);
  for (const NamedSet& set : kNamedSets) {
    if (set.name == key) return &set;
  }
  return nullptr;
}

bool is_hex(char c) { return kHex.npos != std::string_view("0123456789abcdefABCDEF").find(c); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    while (pos_ < in_.size()) FLOTILLA_TRY_STATUS(item());
    return std::move(out_);
  }

 private:
  Error unsupported(std::string_view what) const {
    return Error{ErrorCode::kUnsupported, "regular expression '" + std::string(in_.substr(0, 200)) +
                                              "': " + std::string(what) + " is not supported"};
  }
  bool at(std::string_view text) const { return in_.substr(pos_).starts_with(text); }
  void atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }
  void negatable(std::string_view set, bool negative) {
    atom(negative ? "[^" : "[");
    out_ += set;
    out_ += ']';
  }

  Status item() {
    const char c = in_[pos_];
    if (c == '\\') return escape();
    if (c == '[') return bracket();
    if (c == '(') return open_group();
    if (c == ')') {
      ++pos_;
      // The whole group is what a quantifier now applies to.
      atom_ = groups_.empty() ? out_.size() : groups_.back();
      if (!groups_.empty()) groups_.pop_back();
      out_ += ')';
      return ok_status();
    }
    if (c == '{') return interval();
    if (c == '*' || c == '+' || c == '?') {
      out_ += c;
      ++pos_;
      return ok_status();
    }
    std::size_t size = 1;  // one whole character
    while (pos_ + size < in_.size() &&
           (static_cast<unsigned char>(in_[pos_ + size]) & 0xC0) == 0x80)
      ++size;
    atom(in_.substr(pos_, size));
    pos_ += size;
    return ok_status();
  }

  // {n}, {n,}, {,m}, {n,m}. Here a following + means "once more or often", not "possessive", and
  // {n}? "or not at all".
  Status interval() {
    std::size_t p = pos_ + 1;
    std::string low;
    std::string high;
    bool comma = false;
    while (p < in_.size() && is_digit(in_[p])) low += in_[p++];
    if (p < in_.size() && in_[p] == ',') {
      comma = true;
      ++p;
      while (p < in_.size() && is_digit(in_[p])) high += in_[p++];
    }
    if (p >= in_.size() || in_[p] != '}' || (low.empty() && high.empty())) {
      atom("\\{");
      ++pos_;
      return ok_status();
    }
    pos_ = p + 1;
    if (low.empty()) low = "0";
    out_ += "{" + low + (comma ? "," + high : "") + "}";
    const char next = pos_ < in_.size() ? in_[pos_] : '\0';
    if (next == '+' || (next == '?' && !comma)) {
      out_.insert(atom_, "(?:");
      out_ += ')';
      out_ += next;
      ++pos_;
    }
    return ok_status();
  }

  Status open_group() {
    if (at("(*")) return unsupported("'(*'");
    groups_.push_back(out_.size());
    if (!at("(?")) {
      out_ += '(';
      ++pos_;
      return ok_status();
    }
    for (const std::string_view head : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (at(head)) {
        out_ += head;
        pos_ += head.size();
        return ok_status();
      }
    }
    if (at("(?<")) {
      const std::size_t end = in_.find('>', pos_);
      if (end == std::string_view::npos) return unsupported("an open group name");
      out_ += in_.substr(pos_, end + 1 - pos_);
      pos_ = end + 1;
      return ok_status();
    }
    if (at("(?#")) {
      const std::size_t end = in_.find(')', pos_);
      if (end == std::string_view::npos) return unsupported("an open comment");
      groups_.pop_back();
      pos_ = end + 1;
      return ok_status();
    }
    // Options: Ruby's m lets the dot match newlines, which is s here.
    std::string options = "(?";
    std::size_t p = pos_ + 2;
    for (; p < in_.size() && in_[p] != ')' && in_[p] != ':'; ++p) {
      const char c = in_[p];
      if (c != 'i' && c != 'm' && c != 'x' && c != '-') {
        return unsupported("the group '" + std::string(in_.substr(pos_, 4)) + "'");
      }
      options += c == 'm' ? 's' : c;
    }
    if (p >= in_.size()) return unsupported("an open group");
    options += in_[p];
    if (in_[p] == ')') groups_.pop_back();
    out_ += options;
    pos_ = p + 1;
    return ok_status();
  }

  // Reads {Name} or {^Name} after \p or \P; `negative` comes in as \P and goes out as the whole
  // meaning.
  Result<std::string> property(bool* negative) {
    const std::size_t end = in_.find('}', pos_);
    if (pos_ >= in_.size() || in_[pos_] != '{' || end == std::string_view::npos)
      return unsupported("\\p without {");
    std::string_view name = in_.substr(pos_ + 1, end - pos_ - 1);
    pos_ = end + 1;
    if (name.starts_with('^')) {
      *negative = !*negative;
      name.remove_prefix(1);
    }
    for (const char c : name) {
      if (!is_letter(c) && !is_digit(c) && c != '_' && c != '-' && c != ' ' && c != '&') {
        return unsupported("the property '" + std::string(name) + "'");
      }
    }
    return std::string(name);
  }

  // \xHH, \x{H..}, \uHHHH after the letter; gives \x{...}.
  Result<std::string> code_point(char kind) {
    std::string digits;
    if (kind == 'x' && pos_ < in_.size() && in_[pos_] == '{') {
      const std::size_t end = in_.find('}', pos_);
      if (end == std::string_view::npos) return unsupported("an open \\x{");
      digits = in_.substr(pos_ + 1, end - pos_ - 1);
      pos_ = end + 1;
    } else {
      const std::size_t max = kind == 'x' ? 2 : 4;
      while (digits.size() < max && pos_ < in_.size() && is_hex(in_[pos_])) digits += in_[pos_++];
      if (kind == 'u' && digits.size() != 4) return unsupported("\\u without four digits");
      // Here the original means one byte of a character.
      if (kind == 'x' && digits.size() == 2 && digits[0] >= '8')
        return unsupported("\\x above 7F without braces");
    }
    if (digits.empty() || digits.size() > 8) return unsupported("\\x without digits");
    for (const char c : digits) {
      if (!is_hex(c)) return unsupported("\\x{" + digits + "}");
    }
    return "\\x{" + digits + "}";
  }

  Status escape() {
    if (pos_ + 1 >= in_.size()) return unsupported("a trailing backslash");
    const char c = in_[pos_ + 1];
    pos_ += 2;
    switch (c) {
      case 's':
        negatable(kSpaces, false);
        return ok_status();
      case 'S':
        negatable(kSpaces, true);
        return ok_status();
      case 'w':
        negatable(kWord, false);
        return ok_status();
      case 'W':
        negatable(kWord, true);
        return ok_status();
      case 'd':
        atom("\\p{Nd}");
        return ok_status();
      case 'D':
        atom("\\P{Nd}");
        return ok_status();
      case 'h':
        negatable(kHex, false);
        return ok_status();
      case 'H':
        negatable(kHex, true);
        return ok_status();
      case 'b':
        word_border("(?:(?<=[W])(?![W])|(?<![W])(?=[W]))");
        return ok_status();
      case 'B':
        word_border("(?:(?<=[W])(?=[W])|(?<![W])(?![W]))");
        return ok_status();
      case 'v':
        atom("\\x{B}");
        return ok_status();
      case 'p':
      case 'P': {
        bool negative = c == 'P';
        FLOTILLA_TRY(const std::string name, property(&negative));
        if (const NamedSet* set = named_set(name)) {
          negatable(set->set, negative);
        } else {
          atom((negative ? "\\P{" : "\\p{") + name + "}");
        }
        return ok_status();
      }
      case 'x':
      case 'u': {
        FLOTILLA_TRY(const std::string text, code_point(c));
        atom(text);
        return ok_status();
      }
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'K':
      case 'R':
      case 'X':
      case '0':
      case '1':
      case '2':
      case '3':
      case '4':
      case '5':
      case '6':
      case '7':
      case '8':
      case '9':
        atom(std::string{'\\', c});
        return ok_status();
      case 'k':
      case 'g': {
        const std::size_t end = at("<") ? in_.find('>', pos_) : std::string_view::npos;
        if (end == std::string_view::npos) return unsupported(std::string{'\\', c});
        atom(in_.substr(pos_ - 2, end + 3 - pos_));
        pos_ = end + 1;
        return ok_status();
      }
      case 'N':
      case 'O':
      case 'y':
      case 'Y':
      case 'c':
      case 'C':
      case 'M':
        return unsupported(std::string{'\\', c});
      default:
        break;
    }
    pos_ -= 1;  // an escaped literal
    return literal([this](std::string_view text) { atom(text); });
  }

  template <class Put>
  Status literal(Put put) {
    std::size_t size = 1;
    while (pos_ + size < in_.size() &&
           (static_cast<unsigned char>(in_[pos_ + size]) & 0xC0) == 0x80)
      ++size;
    const std::string_view text = in_.substr(pos_, size);
    pos_ += size;
    const bool plain = size > 1 || is_letter(text[0]) || is_digit(text[0]);
    put(plain ? std::string(text) : "\\" + std::string(text));
    return ok_status();
  }

  void word_border(std::string_view form) {
    std::string text;
    for (const char c : form) {
      if (c == 'W')
        text += kWord;
      else
        text += c;
    }
    atom(text);
  }

  Status bracket() {
    atom("[");
    ++pos_;
    if (at("^")) {
      out_ += '^';
      ++pos_;
    }
    bool first = true;
    for (;; first = false) {
      if (pos_ >= in_.size()) return unsupported("an open bracket expression");
      const char c = in_[pos_];
      if (c == ']' && !first) {
        out_ += ']';
        ++pos_;
        return ok_status();
      }
      if (c == ']') {
        out_ += "\\]";
        ++pos_;
      } else if (at("[:")) {
        FLOTILLA_TRY_STATUS(posix_bracket());
      } else if (c == '[') {
        return unsupported("a nested bracket expression");
      } else if (at("&&")) {
        return unsupported("'&&' in a bracket expression");
      } else if (c == '\\') {
        FLOTILLA_TRY_STATUS(bracket_escape());
      } else {
        out_ += c;
        ++pos_;
      }
    }
  }

  Status posix_bracket() {
    const std::size_t end = in_.find(":]", pos_ + 2);
    if (end == std::string_view::npos) return unsupported("an open [:");
    const std::string_view name = in_.substr(pos_ + 2, end - pos_ - 2);
    const NamedSet* set = named_set(name);
    if (!set) return unsupported("[:" + std::string(name) + ":]");
    out_ += set->set;
    pos_ = end + 2;
    return ok_status();
  }

  Status bracket_escape() {
    if (pos_ + 1 >= in_.size()) return unsupported("a trailing backslash");
    const char c = in_[pos_ + 1];
    pos_ += 2;
    switch (c) {
      case 's':
        out_ += kSpaces;
        return ok_status();
      case 'S':
        out_ += kNonSpaces;
        return ok_status();
      case 'w':
        out_ += kWord;
        return ok_status();
      case 'd':
        out_ += "\\p{Nd}";
        return ok_status();
      case 'D':
        out_ += "\\P{Nd}";
        return ok_status();
      case 'h':
        out_ += kHex;
        return ok_status();
      case 'H':
        out_ += kNonHex;
        return ok_status();
      case 'v':
        out_ += "\\x{B}";
        return ok_status();
      case 'p':
      case 'P': {
        bool negative = c == 'P';
        FLOTILLA_TRY(const std::string name, property(&negative));
        const NamedSet* set = named_set(name);
        if (set && negative) return unsupported("\\P{" + name + "} in a bracket expression");
        if (set)
          out_ += set->set;
        else
          out_ += (negative ? "\\P{" : "\\p{") + name + "}";
        return ok_status();
      }
      case 'x':
      case 'u': {
        FLOTILLA_TRY(const std::string text, code_point(c));
        out_ += text;
        return ok_status();
      }
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'b':
      case '0':
      case '1':
      case '2':
      case '3':
      case '4':
      case '5':
      case '6':
      case '7':
        out_ += '\\';
        out_ += c;
        return ok_status();
      case 'W':
      case 'R':
      case 'X':
      case 'N':
      case 'O':
      case 'c':
      case 'C':
      case 'M':
        return unsupported(std::string("the bracket expression with \\") += c);
      default:
        break;
    }
    pos_ -= 1;
    return literal([this](std::string_view text) { out_ += text; });
  }

  std::string_view in_;
  std::string out_;
  std::size_t pos_ = 0;
  std::size_t atom_ = 0;             // where the last atom begins in out_
  std::vector<std::size_t> groups_;  // where each open group begins in out_
};

}  // namespace

Result<std::string> to_pcre2_syntax(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace flotilla::tokenizer
