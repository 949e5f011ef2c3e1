#include "flotilla/chat/jinja_parser.h"

#include <algorithm>
#include <utility>

namespace flotilla::chat {

ParsedTemplate parse_template(std::string_view source) {
  return TemplateParser(tokenize_template(source)).run();
}

TemplateParser::TemplateParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  for (const char* name : {"loop", "caller", "varargs", "kwargs", "self"}) symbol(name);
}

ParsedTemplate TemplateParser::run() {
  result_.body = parse_body({});
  return std::move(result_);
}

Symbol TemplateParser::symbol(const std::string& name) {
  const auto [it, added] =
      result_.symbol_numbers.try_emplace(name, static_cast<Symbol>(result_.symbols.size()));
  if (added) result_.symbols.push_back(name);
  return it->second;
}

void TemplateParser::fail(std::string message) const {
  throw TemplateError{std::move(message), current().line, current().column};
}

bool TemplateParser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  advance();
  return true;
}
bool TemplateParser::skip_word(std::string_view word) {
  if (!is_word(word)) return false;
  advance();
  return true;
}
void TemplateParser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail("expected '" + std::string(op) + "'");
}
void TemplateParser::expect_word(std::string_view word) {
  if (!skip_word(word)) fail("expected '" + std::string(word) + "'");
}
std::string TemplateParser::expect_name() {
  if (current().kind != TokenKind::kName) fail("expected a name");
  std::string name = current().text;
  advance();
  return name;
}
void TemplateParser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) fail("expected " + std::string(what));
  advance();
}

// Reads until a block whose first word is one of `end_tags`; that word is then the current token.
Body TemplateParser::parse_body(std::initializer_list<std::string_view> end_tags) {
  const DepthGuard guard(*this);
  Body body;
  for (;;) {
    const Token& token = current();
    switch (token.kind) {
      case TokenKind::kData: {
        auto text = std::make_unique<Statement>(StatementKind::kText, token.line);
        text->text = MarkedText::frozen(token.text);
        body.push_back(std::move(text));
        advance();
        break;
      }
      case TokenKind::kVariableBegin: {
        advance();
        auto output = std::make_unique<Statement>(StatementKind::kOutput, current().line);
        output->expression = parse_tuple();
        expect(TokenKind::kVariableEnd, "'}}'");
        body.push_back(std::move(output));
        break;
      }
      case TokenKind::kBlockBegin: {
        advance();
        if (std::any_of(end_tags.begin(), end_tags.end(),
                        [this](std::string_view tag) { return is_word(tag); })) {
          return body;
        }
        body.push_back(parse_block());
        break;
      }
      default:
        if (end_tags.size() != 0) fail("missing '" + std::string(*std::prev(end_tags.end())) + "'");
        if (token.kind != TokenKind::kEnd) fail("unexpected tag");
        return body;
    }
  }
}

void TemplateParser::end_block(std::string_view name) {
  expect_word(name);
  expect(TokenKind::kBlockEnd, "'%}'");
}

StatementPtr TemplateParser::parse_block() {
  if (is_word("if")) return parse_if();
  if (is_word("for")) return parse_for();
  if (is_word("set")) return parse_set();
  if (is_word("macro")) return parse_macro();
  if (is_word("call")) return parse_call_block();
  if (is_word("filter")) return parse_filter_block();
  if (is_word("with")) return parse_with();
  if (is_word("generation")) return parse_generation();
  if (is_word("break") || is_word("continue")) {
    if (loops_ == 0) fail("'" + current().text + "' outside of a loop");
    auto jump = std::make_unique<Statement>(
        is_word("break") ? StatementKind::kBreak : StatementKind::kContinue, current().line);
    advance();
    expect(TokenKind::kBlockEnd, "'%}'");
    return jump;
  }
  if (current().kind != TokenKind::kName) fail("expected the name of a tag");
  fail("unknown tag '" + current().text + "'");
}

StatementPtr TemplateParser::parse_if() {
  auto statement = std::make_unique<Statement>(StatementKind::kIf, current().line);
  advance();
  statement->expression = parse_tuple(false);
  expect(TokenKind::kBlockEnd, "'%}'");
  statement->body = parse_body({"elif", "else", "endif"});
  // A chain of elif is kept flat here and in the evaluator: each hangs in `otherwise` of the one
  // before.
  Statement* last = statement.get();
  while (is_word("elif")) {
    auto next = std::make_unique<Statement>(StatementKind::kIf, current().line);
    advance();
    next->expression = parse_tuple(false);
    expect(TokenKind::kBlockEnd, "'%}'");
    next->body = parse_body({"elif", "else", "endif"});
    last->otherwise.push_back(std::move(next));
    last = last->otherwise.back().get();
    if (++chained_ > kMaxChain) fail("too many branches");
  }
  if (skip_word("else")) {
    expect(TokenKind::kBlockEnd, "'%}'");
    last->otherwise = parse_body({"endif"});
  }
  end_block("endif");
  return statement;
}

StatementPtr TemplateParser::parse_for() {
  auto statement = std::make_unique<Statement>(StatementKind::kFor, current().line);
  advance();
  statement->targets.push_back(parse_target(false));
  expect_word("in");
  statement->expression = parse_tuple(false);
  if (skip_word("if")) statement->test = parse_expression();
  statement->is_recursive = skip_word("recursive");
  expect(TokenKind::kBlockEnd, "'%}'");
  ++loops_;
  statement->body = parse_body({"else", "endfor"});
  --loops_;
  if (skip_word("else")) {
    expect(TokenKind::kBlockEnd, "'%}'");
    statement->otherwise = parse_body({"endfor"});
  }
  end_block("endfor");
  return statement;
}

StatementPtr TemplateParser::parse_set() {
  auto statement = std::make_unique<Statement>(StatementKind::kSet, current().line);
  advance();
  statement->targets.push_back(parse_target(true));
  if (skip_op("=")) {
    statement->expression = parse_tuple();
    expect(TokenKind::kBlockEnd, "'%}'");
    return statement;
  }
  statement->kind = StatementKind::kSetBlock;
  if (skip_op("|")) statement->expression = parse_filter_chain(nullptr);
  expect(TokenKind::kBlockEnd, "'%}'");
  statement->body = parse_body({"endset"});
  end_block("endset");
  return statement;
}

Target TemplateParser::parse_single_target(bool allow_field) {
  const DepthGuard guard(*this);
  if (skip_op("(")) {
    Target target = parse_target(allow_field);
    expect_op(")");
    return target;
  }
  Target target;
  target.name = expect_name();
  for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (target.name == reserved) fail("cannot assign to '" + target.name + "'");
  }
  target.symbol = symbol(target.name);
  if (allow_field && skip_op(".")) target.field = expect_name();
  return target;
}

Target TemplateParser::parse_target(bool allow_field) {
  Target first = parse_single_target(allow_field);
  if (!is_op(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (skip_op(",")) {
    if (is_word("in") || is_op("=") || is_op(")") || current().kind == TokenKind::kBlockEnd) break;
    tuple.parts.push_back(parse_single_target(allow_field));
  }
  return tuple;
}

void TemplateParser::parse_parameters(Statement& statement) {
  expect_op("(");
  while (!is_op(")")) {
    if (!statement.parameters.empty()) expect_op(",");
    if (is_op(")")) break;
    Parameter parameter;
    parameter.name = expect_name();
    parameter.symbol = symbol(parameter.name);
    if (skip_op("=")) {
      parameter.default_value = parse_expression();
    } else if (!statement.parameters.empty() && statement.parameters.back().default_value) {
      fail("a parameter without default follows one with default");
    }
    statement.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

StatementPtr TemplateParser::parse_macro() {
  auto statement = std::make_unique<Statement>(StatementKind::kMacro, current().line);
  advance();
  statement->name = expect_name();
  statement->symbol = symbol(statement->name);
  parse_parameters(*statement);
  expect(TokenKind::kBlockEnd, "'%}'");
  macros_.push_back(statement.get());
  const std::size_t outer_loops = std::exchange(loops_, 0);
  statement->body = parse_body({"endmacro"});
  loops_ = outer_loops;
  macros_.pop_back();
  end_block("endmacro");
  return statement;
}

StatementPtr TemplateParser::parse_call_block() {
  auto statement = std::make_unique<Statement>(StatementKind::kCallBlock, current().line);
  advance();
  if (is_op("(")) parse_parameters(*statement);
  statement->expression = parse_expression();
  if (statement->expression->kind != ExpressionKind::kCall) fail("expected a call");
  expect(TokenKind::kBlockEnd, "'%}'");
  macros_.push_back(statement.get());
  const std::size_t outer_loops = std::exchange(loops_, 0);
  statement->body = parse_body({"endcall"});
  loops_ = outer_loops;
  macros_.pop_back();
  end_block("endcall");
  return statement;
}

StatementPtr TemplateParser::parse_filter_block() {
  auto statement = std::make_unique<Statement>(StatementKind::kFilterBlock, current().line);
  advance();
  statement->expression = parse_filter_chain(nullptr);
  expect(TokenKind::kBlockEnd, "'%}'");
  statement->body = parse_body({"endfilter"});
  end_block("endfilter");
  return statement;
}

StatementPtr TemplateParser::parse_with() {
  auto statement = std::make_unique<Statement>(StatementKind::kWith, current().line);
  advance();
  while (current().kind != TokenKind::kBlockEnd) {
    if (!statement->targets.empty()) expect_op(",");
    statement->targets.push_back(parse_single_target(false));
    expect_op("=");
    statement->values.push_back(parse_expression());
  }
  advance();
  statement->body = parse_body({"endwith"});
  end_block("endwith");
  return statement;
}

StatementPtr TemplateParser::parse_generation() {
  auto statement = std::make_unique<Statement>(StatementKind::kGroup, current().line);
  advance();
  expect(TokenKind::kBlockEnd, "'%}'");
  statement->body = parse_body({"endgeneration"});
  end_block("endgeneration");
  return statement;
}

}  // namespace flotilla::chat
