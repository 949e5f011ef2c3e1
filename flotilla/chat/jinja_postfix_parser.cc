// What follows an operand: members, calls, filters and tests.
#include <utility>

#include "flotilla/chat/jinja_parser.h"

namespace flotilla::chat {

ExpressionPtr TemplateParser::parse_postfix(ExpressionPtr operand) {
  for (std::size_t chain = 0;; ++chain) {
    if (chain > kMaxDepth) fail("expression is too long");
    if (is_op(".") || is_op("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (is_op("(")) {
      auto node = make(ExpressionKind::kCall);
      node->children.push_back(std::move(operand));
      parse_arguments(node->args);
      operand = std::move(node);
    } else {
      return operand;
    }
  }
}

ExpressionPtr TemplateParser::parse_subscript(ExpressionPtr operand) {
  if (skip_op(".")) {
    auto node = make(ExpressionKind::kAttribute);
    node->children.push_back(std::move(operand));
    if (current().kind == TokenKind::kInteger) {
      node->kind = ExpressionKind::kItem;
      node->children.push_back(parse_number());
    } else {
      node->name = expect_name();
    }
    return node;
  }
  auto node = make(ExpressionKind::kItem);
  expect_op("[");
  node->children.push_back(std::move(operand));
  ExpressionPtr first;
  if (!is_op(":")) first = parse_expression();
  if (skip_op("]")) {
    node->children.push_back(std::move(first));
    return node;
  }
  expect_op(":");
  node->kind = ExpressionKind::kSlice;
  node->children.push_back(std::move(first));
  node->children.push_back(is_op(":") || is_op("]") ? nullptr : parse_expression());
  ExpressionPtr step;
  if (skip_op(":") && !is_op("]")) step = parse_expression();
  node->children.push_back(std::move(step));
  expect_op("]");
  return node;
}

void TemplateParser::parse_arguments(ArgumentList& args) {
  expect_op("(");
  while (!is_op(")")) {
    if (skip_op("*")) {
      if (args.star || args.double_star) fail("bad arguments");
      args.star = parse_expression();
    } else if (skip_op("**")) {
      if (args.double_star) fail("bad arguments");
      args.double_star = parse_expression();
    } else if (current().kind == TokenKind::kName && ahead().kind == TokenKind::kOperator &&
               ahead().text == "=") {
      std::string name = expect_name();
      advance();
      args.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (args.star || args.double_star || !args.named.empty())
        fail("a positional argument follows a named one");
      args.positional.push_back(parse_expression());
    }
    if (!is_op(")")) expect_op(",");
  }
  advance();
}

ExpressionPtr TemplateParser::parse_filters_and_tests(ExpressionPtr operand) {
  for (std::size_t chain = 0;; ++chain) {
    if (chain > kMaxDepth) fail("expression is too long");
    if (skip_op("|")) {
      operand = parse_filter(std::move(operand));
    } else if (is_word("is")) {
      operand = parse_test(std::move(operand));
    } else if (is_op("(")) {
      operand = parse_postfix(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr TemplateParser::parse_filter_chain(ExpressionPtr operand) {
  operand = parse_filter(std::move(operand));
  for (std::size_t chain = 0; skip_op("|"); ++chain) {
    if (chain > kMaxDepth) fail("expression is too long");
    operand = parse_filter(std::move(operand));
  }
  return operand;
}

ExpressionPtr TemplateParser::parse_filter(ExpressionPtr operand) {
  auto node = make(ExpressionKind::kFilter);
  node->name = expect_name();
  while (skip_op(".")) node->name += "." + expect_name();
  node->filter = find_filter(node->name);
  node->children.push_back(std::move(operand));
  if (is_op("(")) parse_arguments(node->args);
  return node;
}

ExpressionPtr TemplateParser::parse_test(ExpressionPtr operand) {
  auto node = make(ExpressionKind::kTest);
  expect_word("is");
  const bool is_negated = skip_word("not");
  node->name = expect_name();
  while (skip_op(".")) node->name += "." + expect_name();
  node->test = find_test(node->name);
  node->children.push_back(std::move(operand));
  const Token& next = current();
  const bool starts_argument =
      next.kind == TokenKind::kString || next.kind == TokenKind::kInteger ||
      next.kind == TokenKind::kFloat || is_op("[") || is_op("{") ||
      (next.kind == TokenKind::kName && !is_word("else") && !is_word("or") && !is_word("and") &&
       !is_word("if") && !is_word("in") && !is_word("not") && !is_word("recursive"));
  if (is_op("(")) {
    parse_arguments(node->args);
  } else if (starts_argument) {
    if (is_word("is")) fail("tests cannot be chained");
    node->args.positional.push_back(parse_postfix(parse_primary()));
  }
  if (!is_negated) return node;
  auto negation = make(ExpressionKind::kNot);
  negation->children.push_back(std::move(node));
  return negation;
}

}  // namespace flotilla::chat
