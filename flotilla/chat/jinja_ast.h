// The compiled form of a template. Immutable once parsed, shared by threads; literals are frozen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "flotilla/chat/jinja_runtime.h"
#include "flotilla/chat/jinja_value.h"

namespace flotilla::chat {

using Symbol = std::uint32_t;  // number of a variable's name in the program

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // *list
  ExpressionPtr double_star;  // **dict
};

enum class ExpressionKind {
  kLiteral,      // value
  kName,         // name, symbol
  kTuple,        // children
  kList,         // children
  kDict,         // children: key, value, key, value ...
  kUnary,        // op; children[0]
  kBinary,       // op; children[0], [1]
  kNot,          // children[0]
  kAnd,          // children[0], [1]
  kOr,           // children[0], [1]
  kCompare,      // children[0] op children[1] op children[2] ...
  kConditional,  // children: condition, then, else (may be null)
  kAttribute,    // children[0], name
  kItem,         // children[0], [1]
  kSlice,        // children: object, start, stop, step (the last three may be null)
  kCall,         // children[0], args
  kFilter,       // name, children[0] (null: the body of a filter block), args
  kTest,         // name, children[0], args
};

enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcat,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expression {
  Expression(ExpressionKind k, std::size_t l) : kind(k), line(l) {}
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  ~Expression();  // does not recurse: a hostile source can make very deep trees

  ExpressionKind kind;
  std::size_t line = 0;
  std::vector<ExpressionPtr> children = {};
  Value value = {};
  std::string name = {};
  Symbol symbol = 0;
  Operator op = Operator::kAdd;
  std::vector<Operator> comparisons = {};
  ArgumentList args = {};
  FilterFunction filter = nullptr;  // nullptr: unknown, an error when reached
  TestFunction test = nullptr;
};

// What an assignment writes to: a name, a field of a namespace (`field` not empty), or several.
struct Target {
  Symbol symbol = 0;
  std::string name = {};
  std::string field = {};
  std::vector<Target> parts = {};
  bool is_tuple = false;
};

struct Parameter {
  Symbol symbol = 0;
  std::string name;
  ExpressionPtr default_value;
};

enum class StatementKind {
  kText,         // text
  kOutput,       // expression
  kIf,           // expression, body, otherwise
  kFor,          // targets[0], expression, test (may be null), body, otherwise, is_recursive
  kSet,          // targets[0], expression
  kSetBlock,     // targets[0], expression (filter chain, may be null), body
  kMacro,        // symbol, name, parameters, body
  kCallBlock,    // parameters of the caller, expression (a call), body
  kFilterBlock,  // expression (filter chain), body
  kWith,         // targets, values, body
  kGroup,        // body, as if it stood there: generation blocks
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind k, std::size_t l) : kind(k), line(l) {}

  StatementKind kind;
  std::size_t line = 0;
  MarkedText text = {};
  ExpressionPtr expression = {};
  ExpressionPtr test = {};
  Body body = {};
  Body otherwise = {};
  std::vector<Target> targets = {};
  std::vector<ExpressionPtr> values = {};
  Symbol symbol = 0;
  std::string name = {};
  std::vector<Parameter> parameters = {};
  bool is_recursive = false;
  // Macros: which of the implicit names the body mentions.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

// Symbols that every program numbers first.
enum : Symbol {
  kLoopSymbol,
  kCallerSymbol,
  kVarargsSymbol,
  kKwargsSymbol,
  kSelfSymbol,
  kNumFixedSymbols
};

}  // namespace flotilla::chat
