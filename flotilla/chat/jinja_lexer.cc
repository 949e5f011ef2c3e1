#include "flotilla/chat/jinja_lexer.h"

#include <array>
#include <cstdint>
#include <utility>

#include "flotilla/base/text.h"
#include "flotilla/chat/jinja_runtime.h"
#include "flotilla/chat/unicode_text.h"

namespace flotilla::chat {

namespace {

// Line ends become "\n"; one at the very end is dropped.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_name_start(unsigned char c) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(static_cast<unsigned char>(c)) || is_digit(c); }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_root();
    push(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) {
    mark();
    throw TemplateError{std::move(message), line_, column_};
  }

  // Brings line_ and column_ to at_.
  void mark() {
    for (; marked_ < at_ && marked_ < source_.size(); ++marked_) {
      if (source_[marked_] == '\n') {
        ++line_;
        column_ = 1;
      } else {
        ++column_;
      }
    }
  }

  void push(TokenKind kind, std::string text) {
    mark();
    tokens_.push_back({kind, std::move(text), line_, column_});
  }

  bool starts(std::string_view text, std::size_t at) const {
    return source_.compare(at, text.size(), text) == 0;
  }

  std::size_t skip_space(std::size_t at) const {
    while (at < source_.size()) {
      const std::size_t size = space_at(source_, at);
      if (size == 0) break;
      at += size;
    }
    return at;
  }

  void push_data(std::string_view text, char sign, bool is_variable) {
    if (sign == '-') {
      text = text.substr(0, trailing_space_start(text));
    } else if (sign != '+' && !is_variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) &&
          text.find_first_not_of(" \t\v\f", line_start) == std::string_view::npos) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) push(TokenKind::kData, std::string(text));
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  void lex_root() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        push(TokenKind::kData, source_.substr(at_));
        at_ = source_.size();
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    push_data(std::string_view(source_).substr(at_, tag - at_), sign, kind == '{');
    at_ = tag;
    const std::size_t body = tag + 2 + (sign ? 1 : 0);
    if (kind == '#') {
      lex_comment(body);
    } else if (kind == '%' && lex_raw(body)) {
      return;
    } else {
      lex_code(body, kind == '{');
    }
  }

  // Sets at_ behind an end tag whose two characters are at `end`.
  void leave(std::size_t end, char sign, bool trims_newline) {
    std::size_t next = end + 2;
    if (sign == '-') {
      next = skip_space(next);
    } else if (sign != '+' && trims_newline && next < source_.size() && source_[next] == '\n') {
      ++next;
    }
    at_ = next;
    line_starting_ = source_[next - 1] == '\n';
  }

  void lex_comment(std::size_t body) {
    const std::size_t end = source_.find("#}", body);
    if (end == std::string::npos) fail("missing end of comment");
    const char sign = end > body ? sign_at(end - 1) : '\0';
    leave(end, sign, true);
  }

  bool lex_raw(std::size_t body) {
    std::size_t at = skip_space(body);
    if (!starts("raw", at)) return false;
    at = skip_space(at + 3);
    const bool strips = at < source_.size() && source_[at] == '-';
    if (strips) ++at;
    if (!starts("%}", at)) return false;
    std::size_t text_start = at + 2;
    if (strips) text_start = skip_space(text_start);
    for (std::size_t tag = source_.find("{%", text_start); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const char sign = sign_at(tag + 2);
      std::size_t word = skip_space(tag + 2 + (sign ? 1 : 0));
      if (!starts("endraw", word)) continue;
      word = skip_space(word + 6);
      const char end_sign = sign_at(word);
      if (end_sign) ++word;
      if (!starts("%}", word)) continue;
      line_starting_ = source_[text_start - 1] == '\n';
      push_data(std::string_view(source_).substr(text_start, tag - text_start), sign, false);
      leave(word, end_sign, true);
      return true;
    }
    fail("missing end of raw block");
  }

  void lex_code(std::size_t body, bool is_variable) {
    push(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, {});
    at_ = body;
    std::string open;  // closers that are still expected
    const std::string_view end = is_variable ? "}}" : "%}";
    for (;;) {
      while (at_ < source_.size() && is_space(source_[at_])) ++at_;
      if (at_ >= source_.size()) fail(is_variable ? "missing '}}'" : "missing '%}'");
      if (open.empty()) {
        const char sign = source_[at_];
        const bool is_signed =
            (sign == '-' || (sign == '+' && !is_variable)) && starts(end, at_ + 1);
        if (is_signed || starts(end, at_)) {
          push(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, {});
          leave(at_ + (is_signed ? 1 : 0), is_signed ? sign : '\0', !is_variable);
          return;
        }
      }
      lex_token(open);
    }
  }

  void lex_token(std::string& open) {
    const char c = source_[at_];
    if (is_name_start(static_cast<unsigned char>(c))) {
      std::size_t end = at_;
      while (end < source_.size() && is_name_part(source_[end])) ++end;
      take(TokenKind::kName, end);
    } else if (is_digit(c)) {
      lex_number();
    } else if (c == '"' || c == '\'') {
      lex_string(c);
    } else {
      lex_operator(open);
    }
  }

  void take(TokenKind kind, std::size_t end) {
    push(kind, source_.substr(at_, end - at_));
    at_ = end;
  }

  std::size_t digits_end(std::size_t at) const {
    while (at < source_.size() &&
           (is_digit(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void lex_number() {
    std::size_t end = digits_end(at_);
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      // "a.0.1" is two subscripts.
      const bool after_dot = !tokens_.empty() && tokens_.back().kind == TokenKind::kOperator &&
                             tokens_.back().text == ".";
      if (!after_dot) {
        is_float = true;
        end = digits_end(end + 1);
      }
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
        ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        is_float = true;
        end = digits_end(exponent);
      }
    }
    std::string digits;
    for (std::size_t i = at_; i < end; ++i) {
      if (source_[i] != '_') digits += source_[i];
    }
    push(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(digits));
    at_ = end;
  }

  void lex_string(char quote) {
    std::string value;
    std::size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = lex_escape(i + 1, value);
      } else {
        value += source_[i++];
      }
    }
    if (i >= source_.size()) fail("missing end of string");
    push(TokenKind::kString, std::move(value));
    at_ = i + 1;
  }

  // `at` is behind the backslash; returns where the escape ends.
  std::size_t lex_escape(std::size_t at, std::string& value) {
    const char c = source_[at];
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t i = kNames.find(c); i != std::string_view::npos) {
      value += kValues[i];
      return at + 1;
    }
    if (c == '\n') return at + 1;
    if (c >= '0' && c <= '7') {
      std::uint32_t code = 0;
      std::size_t end = at;
      while (end < source_.size() && end < at + 3 && source_[end] >= '0' && source_[end] <= '7') {
        code = code * 8 + static_cast<std::uint32_t>(source_[end++] - '0');
      }
      append_utf8(value, code);
      return end;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      value += '\\';
      value += c;
      return at + 1;
    }
    std::uint32_t code = 0;
    for (std::size_t i = 1; i <= digits; ++i) {
      const char h = at + i < source_.size() ? source_[at + i] : '\0';
      const int digit = is_digit(h)            ? h - '0'
                        : h >= 'a' && h <= 'f' ? h - 'a' + 10
                        : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                               : -1;
      if (digit < 0) fail("bad escape in string");
      code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail("bad escape in string");
    append_utf8(value, code);
    return at + 1 + digits;
  }

  void lex_operator(std::string& open) {
    static constexpr std::array<std::string_view, 6> kLong = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view op : kLong) {
      if (starts(op, at_)) return take(TokenKind::kOperator, at_ + 2);
    }
    const char c = source_[at_];
    if (std::string_view("+-*/%~<>=.:|,;()[]{}").find(c) == std::string_view::npos) {
      fail("unexpected character in an expression");
    }
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail(std::string("unexpected '") + c + "'");
      open.pop_back();
    }
    take(TokenKind::kOperator, at_ + 1);
  }

  const std::string source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::size_t marked_ = 0;
  std::size_t line_ = 1;
  std::size_t column_ = 1;
  bool line_starting_ = true;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) { return Lexer(source).run(); }

}  // namespace flotilla::chat
