#include <utility>

#include "flotilla/chat/jinja_interpreter.h"

namespace flotilla::chat {

Value Interpreter::evaluate(const Expression& expression) {
  const DepthGuard guard(*this);
  runtime_.charge(1);
  switch (expression.kind) {
    case ExpressionKind::kLiteral:
      return expression.value;
    case ExpressionKind::kName:
      return evaluate_name(expression);
    case ExpressionKind::kTuple:
    case ExpressionKind::kList:
      return evaluate_items(expression);
    case ExpressionKind::kDict:
      return evaluate_dict(expression);
    case ExpressionKind::kUnary:
      return evaluate_unary(expression);
    case ExpressionKind::kBinary:
      return evaluate_binary(expression);
    case ExpressionKind::kNot:
      return Value::boolean(!evaluate(*expression.children[0]).truthy());
    case ExpressionKind::kAnd: {
      Value left = evaluate(*expression.children[0]);
      return left.truthy() ? evaluate(*expression.children[1]) : std::move(left);
    }
    case ExpressionKind::kOr: {
      Value left = evaluate(*expression.children[0]);
      return left.truthy() ? std::move(left) : evaluate(*expression.children[1]);
    }
    case ExpressionKind::kCompare:
      return evaluate_compare(expression);
    case ExpressionKind::kConditional:
      if (evaluate(*expression.children[0]).truthy()) return evaluate(*expression.children[1]);
      return expression.children[2] ? evaluate(*expression.children[2]) : Value();
    case ExpressionKind::kAttribute:
      return runtime_.attribute(evaluate(*expression.children[0]), expression.name);
    case ExpressionKind::kItem: {
      const Value object = evaluate(*expression.children[0]);
      return runtime_.item(object, evaluate(*expression.children[1]));
    }
    case ExpressionKind::kSlice:
      return evaluate_slice(expression);
    case ExpressionKind::kCall:
      return evaluate_call(expression);
    case ExpressionKind::kFilter:
      return evaluate_filter(expression, nullptr);
    case ExpressionKind::kTest:
      return evaluate_test(expression);
  }
  return {};
}

Value Interpreter::evaluate_name(const Expression& expression) {
  for (Scope* scope = scope_; scope; scope = scope->parent) {
    if (const Value* value = scope->find(expression.symbol)) return *value;
  }
  return Value::undefined(&expression.name);
}

Value Interpreter::evaluate_items(const Expression& expression) {
  std::vector<Value> items;
  items.reserve(expression.children.size());
  for (const ExpressionPtr& child : expression.children) items.push_back(evaluate(*child));
  const bool is_tuple = expression.kind == ExpressionKind::kTuple;
  return runtime_.checked(is_tuple ? Value::tuple(std::move(items))
                                   : Value::list(std::move(items)));
}

Value Interpreter::evaluate_dict(const Expression& expression) {
  std::vector<std::pair<Value, Value>> items;
  for (std::size_t i = 0; i + 1 < expression.children.size(); i += 2) {
    Value key = evaluate(*expression.children[i]);
    if (key.is_dict() || (key.is_sequence() && !key.as_list()->is_tuple)) {
      runtime_.fail("'" + std::string(key.type_name()) + "' cannot be a key");
    }
    runtime_.charge(key.weight());
    items.emplace_back(std::move(key), evaluate(*expression.children[i + 1]));
  }
  return runtime_.checked(Value::dict(std::move(items)));
}

Value Interpreter::evaluate_unary(const Expression& expression) {
  const Value operand = evaluate(*expression.children[0]);
  if (operand.is_undefined()) runtime_.fail_undefined(operand);
  if (!operand.is_number())
    runtime_.fail("the sign of '" + std::string(operand.type_name()) + "' is not defined");
  if (operand.is_float())
    return Value::real(expression.op == Operator::kSubtract ? -operand.as_float()
                                                            : operand.as_float());
  return apply_operator(runtime_, expression.op, Value::integer(0), operand);
}

Value Interpreter::evaluate_binary(const Expression& expression) {
  const Value left = evaluate(*expression.children[0]);
  const Value right = evaluate(*expression.children[1]);
  runtime_.set_line(expression.line);
  return apply_operator(runtime_, expression.op, left, right);
}

Value Interpreter::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.children[0]);
  for (std::size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = evaluate(*expression.children[i + 1]);
    if (!apply_comparison(runtime_, expression.comparisons[i], left, right))
      return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_slice(const Expression& expression) {
  const auto bound = [&](std::size_t i) {
    return expression.children[i] ? evaluate(*expression.children[i]) : Value::none();
  };
  const Value object = evaluate(*expression.children[0]);
  const Value start = bound(1);
  const Value stop = bound(2);
  return slice_value(runtime_, object, start, stop, bound(3));
}

Value Interpreter::evaluate_call(const Expression& expression) {
  const Expression& target = *expression.children[0];
  if (target.kind == ExpressionKind::kAttribute) {
    // A method is called without making a bound method first.
    const Value object = evaluate(*target.children[0]);
    if (const auto method = find_method(object, target.name)) {
      const Args args = evaluate_arguments(expression.args);
      runtime_.set_line(expression.line);
      return runtime_.checked(method(runtime_, object, args));
    }
    const Value callee = runtime_.attribute(object, target.name);
    Args args = evaluate_arguments(expression.args);
    runtime_.set_line(expression.line);
    return runtime_.checked(call(callee, args));
  }
  const Value callee = evaluate(target);
  Args args = evaluate_arguments(expression.args);
  runtime_.set_line(expression.line);
  return runtime_.checked(call(callee, args));
}

Value Interpreter::evaluate_filter(const Expression& expression, const Value* input) {
  const Value value = input ? *input : evaluate(*expression.children[0]);
  const Args args = evaluate_arguments(expression.args);
  runtime_.set_line(expression.line);
  if (!expression.filter) runtime_.fail("there is no filter '" + expression.name + "'");
  return runtime_.checked(expression.filter(runtime_, value, args));
}

Value Interpreter::evaluate_test(const Expression& expression) {
  const Value value = evaluate(*expression.children[0]);
  const Args args = evaluate_arguments(expression.args);
  runtime_.set_line(expression.line);
  if (!expression.test) runtime_.fail("there is no test '" + expression.name + "'");
  return Value::boolean(expression.test(runtime_, value, args));
}

// Applies a chain whose innermost filter has no operand: the filters of set and filter blocks.
Value Interpreter::filter_chain(const Expression& chain, Value input) {
  const DepthGuard guard(*this);
  const Expression* inner = chain.children[0].get();
  if (inner) input = filter_chain(*inner, std::move(input));
  return evaluate_filter(chain, &input);
}

}  // namespace flotilla::chat
