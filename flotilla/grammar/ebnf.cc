#include "flotilla/grammar/ebnf.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "flotilla/base/text.h"
#include "flotilla/grammar/regex.h"

namespace flotilla::grammar {
namespace {

constexpr std::uint32_t kNoMaximum = std::numeric_limits<std::uint32_t>::max();
constexpr int kMaxNesting = 64;
// Rules that do not recur are copied into their users while the whole is smaller than this: calls
// cost time at every token.
constexpr std::size_t kCopyUntilStates = 20'000;

struct Token {
  enum class Kind { kName, kDefines, kLiteral, kClass, kPunctuation, kCounts, kEnd };
  Kind kind = Kind::kEnd;
  std::size_t line = 1;
  std::string text;  // of a name, a literal; the character of punctuation
  CodePointSet set;
  std::uint32_t min = 0, max = 0;
};

Error bad(std::size_t line, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, what + " in line " + std::to_string(line)};
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Result<std::vector<Token>> run() {
    std::vector<Token> out;
    while (true) {
      skip_blanks();
      Token token;
      token.line = line_;
      if (at_ >= text_.size()) {
        out.push_back(std::move(token));
        return out;
      }
      FLOTILLA_TRY_STATUS(read(token));
      out.push_back(std::move(token));
    }
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#' || text_.substr(at_).starts_with("//")) {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
        if (c == '\n') ++line_;
        ++at_;
      } else {
        return;
      }
    }
  }

  Status read(Token& token) {
    const char c = text_[at_];
    if (text_.substr(at_).starts_with("::=")) {
      token.kind = Token::Kind::kDefines;
      at_ += 3;
    } else if (is_name_char(c)) {
      token.kind = Token::Kind::kName;
      while (at_ < text_.size() && is_name_char(text_[at_])) token.text += text_[at_++];
    } else if (c == '"' || c == '\'') {
      return literal(token, c);
    } else if (c == '[' || c == '.') {
      token.kind = Token::Kind::kClass;
      if (c == '.') {
        ++at_;
        for (const char32_t end : {U'\n', U'\r', U'\u2028', U'\u2029'}) token.set.add(end, end);
        token.set.negate();
        return ok_status();
      }
      auto set = read_class(text_, at_);
      if (!set.ok()) return bad(line_, set.error().message);
      token.set = std::move(set).value();
    } else if (c == '{') {
      return counts(token);
    } else if (std::string_view("()|?*+").find(c) != std::string_view::npos) {
      token.kind = Token::Kind::kPunctuation;
      token.text = c;
      ++at_;
    } else {
      return bad(line_, std::string("unexpected '") + c + "'");
    }
    return ok_status();
  }

  Status literal(Token& token, char quote) {
    token.kind = Token::Kind::kLiteral;
    ++at_;
    while (true) {
      if (at_ >= text_.size() || text_[at_] == '\n') return bad(line_, "a literal without its end");
      if (text_[at_] == quote) break;
      char32_t c = 0;
      if (text_[at_] == '\\') {
        ++at_;
        if (at_ < text_.size() &&
            std::string_view("dDwWsS").find(text_[at_]) != std::string_view::npos) {
          return bad(line_, "a class inside a literal");
        }
        auto set = read_escape(text_, at_, true);
        if (!set.ok()) return bad(line_, set.error().message);
        c = set->only();
      } else {
        auto plain = read_character(text_, at_);
        if (!plain.ok()) return bad(line_, plain.error().message);
        c = *plain;
      }
      append_utf8(token.text, c);
    }
    ++at_;
    return ok_status();
  }

  Status counts(Token& token) {
    token.kind = Token::Kind::kCounts;
    const std::size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return bad(line_, "a { without its }");
    std::string body;
    for (const char c : text_.substr(at_ + 1, end - at_ - 1)) {
      if (c != ' ') body += c;
    }
    at_ = end + 1;
    const std::size_t comma = body.find(',');
    const auto number = [](const std::string& digits, std::uint32_t& value) {
      value = 0;
      for (const char c : digits) {
        if (c < '0' || c > '9') return false;
        value =
            std::min<std::uint32_t>(value * 10 + static_cast<std::uint32_t>(c - '0'), 1'000'000);
      }
      return !digits.empty();
    };
    bool fine = number(body.substr(0, comma), token.min);
    token.max = token.min;
    if (comma != std::string::npos) {
      const std::string rest = body.substr(comma + 1);
      if (rest.empty()) {
        token.max = kNoMaximum;
      } else {
        fine = fine && number(rest, token.max);
      }
    }
    if (!fine || token.max < token.min) return bad(line_, "malformed {}");
    if (token.min > kMaxRepeat || (token.max != kNoMaximum && token.max > kMaxRepeat)) {
      return bad(line_, "a repetition above the limit of " + std::to_string(kMaxRepeat));
    }
    return ok_status();
  }

  const std::string_view text_;
  std::size_t at_ = 0, line_ = 1;
};

class EbnfEmitter {
 public:
  EbnfEmitter(AutomatonBuilder& builder, std::vector<Token> tokens)
      : b_(builder), tokens_(std::move(tokens)) {}

  Status run(StateId from, StateId to) {
    FLOTILLA_TRY_STATUS(find_rules());
    const auto root = rules_.find("root");
    if (root == rules_.end()) return bad(1, "there is no rule 'root'");
    FLOTILLA_TRY_STATUS(body(root->second, from, to, 0));
    while (!tasks_.empty()) {
      const Task task = tasks_.front();
      tasks_.pop_front();
      FLOTILLA_TRY_STATUS(body(*task.rule, task.from, task.to, 0));
    }
    return ok_status();
  }

 private:
  struct Rule {
    std::string name;
    std::size_t first = 0;  // token of the body
    std::size_t end = 0;
    bool recurs = false;
    bool is_called = false;
    RuleId id = 0;
  };
  struct Task {
    const Rule* rule;
    StateId from, to;
  };

  const Token& token() const { return tokens_[at_]; }
  bool at_end() const { return at_ >= end_; }
  bool is(char c) const {
    return !at_end() && token().kind == Token::Kind::kPunctuation && token().text[0] == c;
  }

  Status find_rules() {
    Rule* current = nullptr;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool defines = tokens_[i].kind == Token::Kind::kName && i + 1 < tokens_.size() &&
                           tokens_[i + 1].kind == Token::Kind::kDefines;
      if (defines || tokens_[i].kind == Token::Kind::kEnd) {
        if (current != nullptr) current->end = i;
        if (!defines) break;
        const auto [it, fresh] =
            rules_.emplace(tokens_[i].text, Rule{.name = tokens_[i].text, .first = i + 2});
        if (!fresh)
          return bad(tokens_[i].line, "the rule '" + tokens_[i].text + "' is defined twice");
        current = &it->second;
        ++i;
      } else if (current == nullptr || tokens_[i].kind == Token::Kind::kDefines) {
        return bad(tokens_[i].line, "expected 'name ::='");
      }
    }
    std::map<std::string, std::set<std::string>> uses;
    for (const auto& [name, rule] : rules_) {
      for (std::size_t i = rule.first; i < rule.end; ++i) {
        if (tokens_[i].kind != Token::Kind::kName) continue;
        if (!rules_.contains(tokens_[i].text)) {
          return bad(tokens_[i].line, "there is no rule '" + tokens_[i].text + "'");
        }
        uses[name].insert(tokens_[i].text);
      }
    }
    for (auto& [name, rule] : rules_) {
      std::set<std::string> seen;
      std::vector<std::string> todo(uses[name].begin(), uses[name].end());
      while (!todo.empty() && !rule.recurs) {
        std::string next = std::move(todo.back());
        todo.pop_back();
        if (next == name) rule.recurs = true;
        if (!seen.insert(next).second) continue;
        todo.insert(todo.end(), uses[next].begin(), uses[next].end());
      }
    }
    return ok_status();
  }

  // Emits a whole rule; the place in the tokens is kept.
  Status body(const Rule& rule, StateId from, StateId to, int depth) {
    const std::size_t at = at_, end = end_;
    at_ = rule.first;
    end_ = rule.end;
    FLOTILLA_TRY_STATUS(alternatives(from, to, depth));
    if (!at_end()) return bad(token().line, "unexpected ')'");
    at_ = at;
    end_ = end;
    return ok_status();
  }

  Status alternatives(StateId from, StateId to, int depth) {
    if (depth > kMaxNesting)
      return bad(tokens_[std::min(at_, tokens_.size() - 1)].line, "nested too deeply");
    while (true) {
      FLOTILLA_TRY_STATUS(sequence(from, to, depth));
      if (!is('|')) return ok_status();
      ++at_;
    }
  }

  Status sequence(StateId from, StateId to, int depth) {
    StateId at = b_.add_state();
    b_.add_empty(from, at);
    while (!at_end() && !is('|') && !is(')')) {
      const StateId next = b_.add_state();
      FLOTILLA_TRY_STATUS(repeated(at, next, depth));
      at = next;
      FLOTILLA_TRY_STATUS(check_size());
    }
    b_.add_empty(at, to);
    return ok_status();
  }

  Status check_size() const {
    if (!b_.overflowed()) return ok_status();
    return Error{ErrorCode::kTooLarge, "the grammar is too large"};
  }

  Status repeated(StateId from, StateId to, int depth) {
    const std::size_t start = at_;
    const StateId first_from = b_.add_state(), first_to = b_.add_state();
    FLOTILLA_TRY_STATUS(atom(first_from, first_to, depth));
    std::uint32_t min = 1, max = 1;
    if (is('*') || is('?')) min = 0;
    if (is('*') || is('+')) max = kNoMaximum;
    if (is('*') || is('?') || is('+')) {
      ++at_;
    } else if (!at_end() && token().kind == Token::Kind::kCounts) {
      min = token().min;
      max = token().max;
      ++at_;
    }
    const std::size_t behind = at_;
    if (max == 0) {
      b_.add_empty(from, to);
      return ok_status();
    }
    b_.add_empty(from, first_from);
    if (min == 0) b_.add_empty(from, to);
    StateId at = first_to, last_from = first_from;
    const std::uint32_t copies = max == kNoMaximum ? std::max<std::uint32_t>(min, 1) : max;
    for (std::uint32_t i = 1; i < copies; ++i) {
      if (i >= min) b_.add_empty(at, to);
      const StateId next = b_.add_state();
      last_from = at;
      at_ = start;
      FLOTILLA_TRY_STATUS(atom(at, next, depth));
      FLOTILLA_TRY_STATUS(check_size());
      at = next;
    }
    at_ = behind;
    if (max == kNoMaximum) b_.add_empty(at, last_from);
    b_.add_empty(at, to);
    return ok_status();
  }

  Status atom(StateId from, StateId to, int depth) {
    Token& t = tokens_[at_];
    if (at_end()) return bad(t.line, "unexpected end of a rule");
    switch (t.kind) {
      case Token::Kind::kLiteral:
        b_.add_literal(from, t.text, to);
        break;
      case Token::Kind::kClass:
        t.set.emit(b_, from, to);
        break;
      case Token::Kind::kName: {
        Rule& rule = rules_.at(t.text);
        ++at_;
        if (!rule.recurs && depth < kMaxNesting / 2 && b_.num_states() < kCopyUntilStates) {
          return body(rule, from, to, depth + 1);
        }
        if (!rule.is_called) {
          rule.is_called = true;
          const StateId rule_from = b_.add_state(), rule_to = b_.add_state();
          b_.mark_end(rule_to);
          rule.id = b_.add_rule(rule_from);
          tasks_.push_back({&rule, rule_from, rule_to});
        }
        b_.add_call(from, rule.id, to);
        return ok_status();
      }
      case Token::Kind::kPunctuation:
        if (t.text != "(") return bad(t.line, "unexpected '" + t.text + "'");
        ++at_;
        FLOTILLA_TRY_STATUS(alternatives(from, to, depth + 1));
        if (!is(')')) return bad(t.line, "a ( without its )");
        break;
      default:
        return bad(t.line, "unexpected token");
    }
    ++at_;
    return ok_status();
  }

  AutomatonBuilder& b_;
  std::vector<Token> tokens_;
  std::map<std::string, Rule> rules_;
  std::deque<Task> tasks_;
  std::size_t at_ = 0, end_ = 0;
};

}  // namespace

Status emit_ebnf(AutomatonBuilder& builder, std::string_view source, StateId from, StateId to) {
  if (source.size() > kMaxEbnfBytes) {
    return Error{ErrorCode::kTooLarge, "the grammar has " + std::to_string(source.size()) +
                                           " bytes; the limit is " + std::to_string(kMaxEbnfBytes)};
  }
  FLOTILLA_TRY(std::vector<Token> tokens, Lexer(source).run());
  return EbnfEmitter(builder, std::move(tokens)).run(from, to);
}

}  // namespace flotilla::grammar
