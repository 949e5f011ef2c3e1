#include <charconv>
#include <utility>

#include "flotilla/chat/jinja_parser.h"

namespace flotilla::chat {

ExpressionPtr TemplateParser::make(ExpressionKind kind) const {
  return std::make_unique<Expression>(kind, current().line);
}

ExpressionPtr TemplateParser::make_binary(Operator op, ExpressionPtr left,
                                          ExpressionPtr right) const {
  auto node = std::make_unique<Expression>(ExpressionKind::kBinary, left->line);
  node->op = op;
  node->children.push_back(std::move(left));
  node->children.push_back(std::move(right));
  return node;
}

ExpressionPtr TemplateParser::make_name(const std::string& name) {
  auto node = make(ExpressionKind::kName);
  node->name = name;
  node->symbol = symbol(name);
  for (Statement* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
  }
  return node;
}

ExpressionPtr TemplateParser::parse_expression(bool with_conditional) {
  const DepthGuard guard(*this);
  return with_conditional ? parse_conditional() : parse_or();
}

bool TemplateParser::is_expression_end() const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
         is_op(")") || is_word("recursive");
}

ExpressionPtr TemplateParser::parse_tuple(bool with_conditional) {
  ExpressionPtr first = parse_expression(with_conditional);
  if (!is_op(",")) return first;
  auto tuple = make(ExpressionKind::kTuple);
  tuple->children.push_back(std::move(first));
  while (skip_op(",")) {
    if (is_expression_end()) break;
    tuple->children.push_back(parse_expression(with_conditional));
  }
  return tuple;
}

ExpressionPtr TemplateParser::parse_conditional() {
  ExpressionPtr value = parse_or();
  std::size_t chain = 0;
  while (is_word("if")) {
    if (++chain > kMaxDepth) fail("nested too deeply");
    auto node = make(ExpressionKind::kConditional);
    advance();
    node->children.push_back(parse_or());
    node->children.push_back(std::move(value));
    if (skip_word("else")) {
      const DepthGuard guard(*this);
      node->children.push_back(parse_conditional());
    } else {
      node->children.push_back(nullptr);
    }
    value = std::move(node);
  }
  return value;
}

// Left-associative chains become left-deep trees; `chain` keeps them shallow enough to evaluate and
// free.
ExpressionPtr TemplateParser::parse_or() {
  ExpressionPtr left = parse_and();
  for (std::size_t chain = 0; is_word("or"); ++chain) {
    if (chain > kMaxDepth) fail("expression is too long");
    auto node = make(ExpressionKind::kOr);
    advance();
    node->children.push_back(std::move(left));
    node->children.push_back(parse_and());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr TemplateParser::parse_and() {
  ExpressionPtr left = parse_not();
  for (std::size_t chain = 0; is_word("and"); ++chain) {
    if (chain > kMaxDepth) fail("expression is too long");
    auto node = make(ExpressionKind::kAnd);
    advance();
    node->children.push_back(std::move(left));
    node->children.push_back(parse_not());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr TemplateParser::parse_not() {
  if (!is_word("not")) return parse_compare();
  const DepthGuard guard(*this);
  auto node = make(ExpressionKind::kNot);
  advance();
  node->children.push_back(parse_not());
  return node;
}

ExpressionPtr TemplateParser::parse_compare() {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  ExpressionPtr first = parse_sum();
  ExpressionPtr node;
  for (;;) {
    const Operator* found = nullptr;
    static constexpr Operator kIn = Operator::kIn;
    static constexpr Operator kNotIn = Operator::kNotIn;
    if (is_word("in")) {
      found = &kIn;
    } else if (is_word("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      advance();
      found = &kNotIn;
    } else if (current().kind == TokenKind::kOperator) {
      for (const auto& [text, op] : kOperators) {
        if (current().text == text) found = &op;
      }
    }
    if (!found) break;
    if (!node) {
      node = make(ExpressionKind::kCompare);
      node->children.push_back(std::move(first));
    }
    advance();
    node->comparisons.push_back(*found);
    node->children.push_back(parse_sum());
  }
  return node ? std::move(node) : std::move(first);
}

ExpressionPtr TemplateParser::parse_sum() {
  ExpressionPtr left = parse_concat();
  for (std::size_t chain = 0; is_op("+") || is_op("-"); ++chain) {
    if (chain > kMaxDepth) fail("expression is too long");
    const Operator op = is_op("+") ? Operator::kAdd : Operator::kSubtract;
    advance();
    left = make_binary(op, std::move(left), parse_concat());
  }
  return left;
}

ExpressionPtr TemplateParser::parse_concat() {
  ExpressionPtr left = parse_product();
  for (std::size_t chain = 0; is_op("~"); ++chain) {
    if (chain > kMaxDepth) fail("expression is too long");
    advance();
    left = make_binary(Operator::kConcat, std::move(left), parse_product());
  }
  return left;
}

ExpressionPtr TemplateParser::parse_product() {
  ExpressionPtr left = parse_power();
  for (std::size_t chain = 0;; ++chain) {
    const bool is_floor = is_op("//");
    if (!is_op("*") && !is_op("/") && !is_floor && !is_op("%")) return left;
    if (chain > kMaxDepth) fail("expression is too long");
    const Operator op = is_floor     ? Operator::kFloorDivide
                        : is_op("*") ? Operator::kMultiply
                        : is_op("/") ? Operator::kDivide
                                     : Operator::kModulo;
    advance();
    left = make_binary(op, std::move(left), parse_power());
  }
}

ExpressionPtr TemplateParser::parse_power() {
  ExpressionPtr left = parse_unary();
  for (std::size_t chain = 0; is_op("**"); ++chain) {
    if (chain > kMaxDepth) fail("expression is too long");
    advance();
    left = make_binary(Operator::kPower, std::move(left), parse_unary());
  }
  return left;
}

ExpressionPtr TemplateParser::parse_unary(bool with_filter) {
  const DepthGuard guard(*this);
  ExpressionPtr node;
  if (is_op("-") || is_op("+")) {
    node = make(ExpressionKind::kUnary);
    node->op = is_op("-") ? Operator::kSubtract : Operator::kAdd;
    advance();
    node->children.push_back(parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr TemplateParser::parse_primary() {
  const Token& token = current();
  if (token.kind == TokenKind::kName) {
    const std::string& word = token.text;
    ExpressionPtr node;
    if (word == "true" || word == "True" || word == "false" || word == "False") {
      node = make(ExpressionKind::kLiteral);
      node->value = Value::boolean(word == "true" || word == "True");
    } else if (word == "none" || word == "None") {
      node = make(ExpressionKind::kLiteral);
      node->value = Value::none();
    } else {
      node = make_name(word);
    }
    advance();
    return node;
  }
  if (token.kind == TokenKind::kString) {
    auto node = make(ExpressionKind::kLiteral);
    std::string text;
    for (; current().kind == TokenKind::kString; advance()) text += current().text;
    node->value = Value::text(MarkedText::frozen(std::move(text)));
    return node;
  }
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return parse_number();
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  if (!skip_op("(")) fail("expected an expression");
  if (skip_op(")")) return make(ExpressionKind::kTuple);
  ExpressionPtr node = parse_tuple();
  expect_op(")");
  return node;
}

ExpressionPtr TemplateParser::parse_number() {
  auto node = make(ExpressionKind::kLiteral);
  const std::string& digits = current().text;
  const char* end = digits.data() + digits.size();
  if (current().kind == TokenKind::kInteger) {
    std::int64_t number = 0;
    if (std::from_chars(digits.data(), end, number).ec != std::errc()) fail("number is too large");
    node->value = Value::integer(number);
  } else {
    double number = 0;
    if (std::from_chars(digits.data(), end, number).ec != std::errc())
      fail("number is out of range");
    node->value = Value::real(number);
  }
  advance();
  return node;
}

ExpressionPtr TemplateParser::parse_list() {
  auto node = make(ExpressionKind::kList);
  expect_op("[");
  while (!is_op("]")) {
    node->children.push_back(parse_expression());
    if (!is_op("]")) expect_op(",");
  }
  advance();
  return node;
}

ExpressionPtr TemplateParser::parse_dict() {
  auto node = make(ExpressionKind::kDict);
  expect_op("{");
  while (!is_op("}")) {
    node->children.push_back(parse_expression());
    expect_op(":");
    node->children.push_back(parse_expression());
    if (!is_op("}")) expect_op(",");
  }
  advance();
  return node;
}

}  // namespace flotilla::chat
