// Turns tokens into a program.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "flotilla/chat/jinja_ast.h"
#include "flotilla/chat/jinja_lexer.h"

namespace flotilla::chat {

struct ParsedTemplate {
  Body body;
  std::vector<std::string> symbols;
  std::unordered_map<std::string, Symbol> symbol_numbers;
};

// Throws TemplateError.
ParsedTemplate parse_template(std::string_view source);

// The recursive descent behind parse_template(); one use.
class TemplateParser {
 public:
  explicit TemplateParser(std::vector<Token> tokens);
  ParsedTemplate run();

 private:
  static constexpr std::size_t kMaxDepth = 400;    // nested bodies and expressions
  static constexpr std::size_t kMaxChain = 1'000;  // elif branches in all

  // Refuses nesting that would exhaust the stack.
  class DepthGuard {
   public:
    explicit DepthGuard(TemplateParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.fail("nested too deeply");
    }
    ~DepthGuard() { --parser_.depth_; }

   private:
    TemplateParser& parser_;
  };

  // Statements (jinja_parser.cc)
  Body parse_body(std::initializer_list<std::string_view> end_tags);
  StatementPtr parse_block();
  StatementPtr parse_if();
  StatementPtr parse_for();
  StatementPtr parse_set();
  StatementPtr parse_macro();
  StatementPtr parse_call_block();
  StatementPtr parse_filter_block();
  StatementPtr parse_with();
  StatementPtr parse_generation();
  Target parse_target(bool allow_field);
  Target parse_single_target(bool allow_field);
  void parse_parameters(Statement& statement);
  void end_block(std::string_view name);

  // Expressions (jinja_expression_parser.cc)
  ExpressionPtr parse_expression(bool with_conditional = true);
  ExpressionPtr parse_tuple(bool with_conditional = true);
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filter = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_number();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_subscript(ExpressionPtr operand);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr operand);
  ExpressionPtr parse_filter_chain(ExpressionPtr operand);  // current token is the name
  ExpressionPtr parse_filter(ExpressionPtr operand);        // current token is the name
  ExpressionPtr parse_test(ExpressionPtr operand);
  void parse_arguments(ArgumentList& args);
  bool is_expression_end() const;
  ExpressionPtr make(ExpressionKind kind) const;
  ExpressionPtr make_binary(Operator op, ExpressionPtr left, ExpressionPtr right) const;
  ExpressionPtr make_name(const std::string& name);

  // Tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void advance() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool is_op(std::string_view op) const {
    return current().kind == TokenKind::kOperator && current().text == op;
  }
  bool is_word(std::string_view word) const {
    return current().kind == TokenKind::kName && current().text == word;
  }
  bool skip_op(std::string_view op);
  bool skip_word(std::string_view word);
  void expect_op(std::string_view op);
  void expect_word(std::string_view word);
  std::string expect_name();
  void expect(TokenKind kind, std::string_view what);
  [[noreturn]] void fail(std::string message) const;
  Symbol symbol(const std::string& name);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::size_t loops_ = 0;
  std::size_t chained_ = 0;
  std::vector<Statement*> macros_;  // being parsed, outermost first
  ParsedTemplate result_;
};

}  // namespace flotilla::chat
