#include "flotilla/chat/jinja_interpreter.h"

#include <algorithm>
#include <utility>

namespace flotilla::chat {

Value* Scope::find(Symbol symbol) {
  for (auto& variable : variables) {
    if (variable.first == symbol) return &variable.second;
  }
  return nullptr;
}

void Scope::set(Symbol symbol, Value value) {
  if (Value* old = find(symbol)) {
    *old = std::move(value);
  } else {
    variables.emplace_back(symbol, std::move(value));
  }
}

Interpreter::ScopeGuard::ScopeGuard(Interpreter& interpreter, Scope* parent)
    : interpreter_(interpreter), previous_(interpreter.scope_) {
  if (interpreter.free_scopes_.empty()) {
    interpreter.scopes_.push_back(std::make_unique<Scope>());
    interpreter.free_scopes_.push_back(interpreter.scopes_.back().get());
  }
  interpreter.scope_ = interpreter.free_scopes_.back();
  interpreter.free_scopes_.pop_back();
  interpreter.scope_->parent = parent;
}

Interpreter::ScopeGuard::~ScopeGuard() {
  Scope* scope = interpreter_.scope_;
  interpreter_.scope_ = previous_;
  if (scope->is_captured) return;
  scope->variables.clear();
  interpreter_.free_scopes_.push_back(scope);
}

Interpreter::Interpreter(const ParsedTemplate& program, Runtime& runtime)
    : program_(program), runtime_(runtime) {
  scopes_.push_back(std::make_unique<Scope>());
  scope_ = scopes_.back().get();
  for (std::size_t i = kNumFixedSymbols; i < program.symbols.size(); ++i) {
    if (const auto function = find_global(program.symbols[i])) {
      Callable global;
      global.function = function;
      scope_->set(static_cast<Symbol>(i), Value::callable(std::move(global)));
    }
  }
}

void Interpreter::set_global(const std::string& name, Value value) {
  const auto it = program_.symbol_numbers.find(name);
  if (it != program_.symbol_numbers.end()) scope_->set(it->second, std::move(value));
}

SpanText Interpreter::run() {
  TextBuilder builder;
  output_ = &builder;
  // Globals stay below the template's own variables.
  const ScopeGuard guard(*this, scope_);
  execute(program_.body);
  return builder.take_spans();
}

void Interpreter::write(const MarkedText& text) {
  runtime_.check_text(output_->size() + text.size() > runtime_.max_text()
                          ? output_->size() + text.size()
                          : text.size());
  output_->append(text);
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const StatementPtr& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  const DepthGuard guard(*this);
  runtime_.charge(1);
  runtime_.set_line(statement.line);
  switch (statement.kind) {
    case StatementKind::kText:
      write(statement.text);
      return Flow::kNext;
    case StatementKind::kOutput:
      write(runtime_.to_text(evaluate(*statement.expression)));
      return Flow::kNext;
    case StatementKind::kIf:
      return execute_if(statement);
    case StatementKind::kFor:
      execute_for(statement);
      return Flow::kNext;
    case StatementKind::kSet:
      assign(statement.targets[0], evaluate(*statement.expression));
      return Flow::kNext;
    case StatementKind::kSetBlock:
      execute_set_block(statement);
      return Flow::kNext;
    case StatementKind::kMacro: {
      Callable macro;
      macro.kind = Callable::Kind::kMacro;
      macro.statement = &statement;
      macro.scope = capture_scope();
      scope_->set(statement.symbol, Value::callable(std::move(macro)));
      return Flow::kNext;
    }
    case StatementKind::kCallBlock:
      execute_call_block(statement);
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      execute_filter_block(statement);
      return Flow::kNext;
    case StatementKind::kWith:
      execute_with(statement);
      return Flow::kNext;
    case StatementKind::kGroup:
      return execute(statement.body);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

// The scopes up to the root stay alive with the current one.
Scope* Interpreter::capture_scope() {
  for (Scope* scope = scope_; scope && !scope->is_captured; scope = scope->parent)
    scope->is_captured = true;
  return scope_;
}

Interpreter::Flow Interpreter::execute_if(const Statement& first) {
  const Statement* statement = &first;
  while (!evaluate(*statement->expression).truthy()) {
    const Body& otherwise = statement->otherwise;
    if (otherwise.size() != 1 || otherwise[0]->kind != StatementKind::kIf)
      return execute(otherwise);
    statement = otherwise[0].get();
    runtime_.charge(1);
  }
  return execute(statement->body);
}

void Interpreter::assign(const Target& target, Value value) {
  if (target.is_tuple) {
    const ListPtr items = runtime_.iterate(value);
    if (items->items.size() != target.parts.size()) {
      runtime_.fail("cannot unpack " + std::to_string(items->items.size()) + " values into " +
                    std::to_string(target.parts.size()) + " names");
    }
    for (std::size_t i = 0; i < target.parts.size(); ++i) assign(target.parts[i], items->items[i]);
    return;
  }
  if (target.field.empty()) {
    scope_->set(target.symbol, std::move(value));
    return;
  }
  for (Scope* scope = scope_; scope; scope = scope->parent) {
    Value* object = scope->find(target.symbol);
    if (!object) continue;
    if (!object->is_namespace()) break;
    object->as_namespace().set(target.field, std::move(value));
    return;
  }
  runtime_.fail("'" + target.name + "' is no namespace: its attributes cannot be set");
}

void Interpreter::execute_for(const Statement& statement) {
  // loop(...) may be called after this scope ended.
  if (statement.is_recursive) capture_scope();
  run_loop(statement, runtime_.iterate(evaluate(*statement.expression)), scope_, 0);
}

ListPtr Interpreter::filter_items(const Statement& statement, const ListPtr& items, Scope* scope) {
  std::vector<Value> kept;
  for (const Value& item : items->items) {
    const ScopeGuard guard(*this, scope);
    assign(statement.targets[0], item);
    if (evaluate(*statement.test).truthy()) kept.push_back(item);
  }
  return Value::list(std::move(kept)).as_list();
}

void Interpreter::run_loop(const Statement& statement, ListPtr items, Scope* scope,
                           std::size_t level) {
  if (statement.test) items = filter_items(statement, items, scope);
  if (items->items.empty()) {
    const ScopeGuard guard(*this, scope);
    execute(statement.otherwise);
    return;
  }
  auto loop = std::make_shared<LoopObject>();
  loop->items = std::move(items);
  loop->level = level;
  loop->scope = scope;
  if (statement.is_recursive) loop->recursive = &statement;
  const Value loop_value = runtime_.checked(Value::loop(loop));
  for (std::size_t i = 0; i < loop->items->items.size(); ++i) {
    runtime_.charge(1);
    loop->index0 = i;
    const ScopeGuard guard(*this, scope);
    scope_->set(kLoopSymbol, loop_value);
    assign(statement.targets[0], loop->items->items[i]);
    if (execute(statement.body) == Flow::kBreak) break;
  }
}

void Interpreter::execute_set_block(const Statement& statement) {
  Value value;
  {
    OutputGuard output(*this);
    const ScopeGuard guard(*this, scope_);
    execute(statement.body);
    value = output.take();
  }
  if (statement.expression) value = filter_chain(*statement.expression, std::move(value));
  assign(statement.targets[0], std::move(value));
}

void Interpreter::execute_filter_block(const Statement& statement) {
  Value value;
  {
    OutputGuard output(*this);
    const ScopeGuard guard(*this, scope_);
    execute(statement.body);
    value = output.take();
  }
  write(runtime_.to_text(filter_chain(*statement.expression, std::move(value))));
}

void Interpreter::execute_with(const Statement& statement) {
  std::vector<Value> values;
  for (const ExpressionPtr& value : statement.values) values.push_back(evaluate(*value));
  const ScopeGuard guard(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i)
    assign(statement.targets[i], std::move(values[i]));
  execute(statement.body);
}

void Interpreter::execute_call_block(const Statement& statement) {
  const Expression& expression = *statement.expression;
  const Value callee = evaluate(*expression.children[0]);
  Args args = evaluate_arguments(expression.args);
  Callable caller;
  caller.kind = Callable::Kind::kCaller;
  caller.statement = &statement;
  caller.scope = capture_scope();
  args.named.emplace_back("caller", Value::callable(std::move(caller)));
  write(runtime_.to_text(call(callee, args)));
}

Args Interpreter::evaluate_arguments(const ArgumentList& list) {
  Args args;
  args.positional.reserve(list.positional.size());
  for (const ExpressionPtr& value : list.positional) args.positional.push_back(evaluate(*value));
  for (const auto& [name, value] : list.named) args.named.emplace_back(name, evaluate(*value));
  if (list.star) {
    const ListPtr items = runtime_.iterate(evaluate(*list.star));
    runtime_.charge(items->items.size());
    args.positional.insert(args.positional.end(), items->items.begin(), items->items.end());
  }
  if (list.double_star) {
    const Value extra = evaluate(*list.double_star);
    if (!extra.is_dict()) runtime_.fail("the value after ** is no dict");
    for (const auto& [name, value] : extra.as_dict()->items()) {
      if (!name.is_text()) runtime_.fail("a keyword is no string");
      // Views of argument names must stay valid: copy the name to where nothing grows.
      names_.push_back(std::string(name.as_text().view()));
      args.named.emplace_back(names_.back(), value);
    }
  }
  return args;
}

Value Interpreter::call(const Value& callee, Args& args) {
  if (callee.is_loop()) {
    const std::shared_ptr<LoopObject> loop = callee.as_loop();
    if (!loop->recursive || args.positional.size() != 1)
      runtime_.fail("only a recursive loop can be called");
    OutputGuard output(*this);
    const ListPtr items = runtime_.iterate(args.positional[0]);
    run_loop(*loop->recursive, items, loop->scope, loop->level + 1);
    return output.take();
  }
  if (callee.is_undefined()) runtime_.fail_undefined(callee);
  if (!callee.is_callable())
    runtime_.fail("'" + std::string(callee.type_name()) + "' is not callable");
  const Callable& callable = callee.as_callable();
  if (callable.kind == Callable::Kind::kNative)
    return callable.function(runtime_, callable.self, args);
  return call_macro(*callable.statement, callable.scope, args);
}

Value Interpreter::call_macro(const Statement& macro, Scope* scope, Args& args) {
  const std::size_t line = runtime_.line();
  OutputGuard output(*this);
  const ScopeGuard guard(*this, scope);
  bind_parameters(macro, args);
  execute(macro.body);
  runtime_.set_line(line);
  return output.take();
}

void Interpreter::bind_parameters(const Statement& macro, Args& args) {
  const std::string& name = macro.name.empty() ? program_.symbols[kCallerSymbol] : macro.name;
  std::vector<bool> is_used(args.named.size(), false);
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const auto named =
        std::find_if(args.named.begin(), args.named.end(),
                     [&parameter](const auto& arg) { return arg.first == parameter.name; });
    if (named != args.named.end())
      is_used[static_cast<std::size_t>(named - args.named.begin())] = true;
    if (i < args.positional.size()) {
      if (named != args.named.end())
        runtime_.fail("'" + name + "' got two values for '" + parameter.name + "'");
      scope_->set(parameter.symbol, args.positional[i]);
    } else if (named != args.named.end()) {
      scope_->set(parameter.symbol, named->second);
    } else if (parameter.default_value) {
      scope_->set(parameter.symbol, evaluate(*parameter.default_value));
    } else {
      scope_->set(parameter.symbol, Value::undefined(&parameter.name));
    }
  }
  std::vector<Value> varargs;
  for (std::size_t i = macro.parameters.size(); i < args.positional.size(); ++i)
    varargs.push_back(args.positional[i]);
  if (!varargs.empty() && !macro.uses_varargs) {
    runtime_.fail("'" + name + "' takes at most " + std::to_string(macro.parameters.size()) +
                  " arguments");
  }
  std::vector<std::pair<Value, Value>> kwargs;
  Value caller;
  for (std::size_t i = 0; i < args.named.size(); ++i) {
    if (is_used[i]) continue;
    const std::string_view key = args.named[i].first;
    if (key == "caller" && macro.uses_caller) {
      caller = args.named[i].second;
    } else if (macro.uses_kwargs) {
      kwargs.emplace_back(Value::text(std::string(key), false), args.named[i].second);
    } else {
      runtime_.fail("'" + name + "' takes no argument '" + std::string(key) + "'");
    }
  }
  // A call block inside a macro sees the macro's own caller unless it has one.
  const bool is_call_block = macro.kind == StatementKind::kCallBlock;
  if (macro.uses_caller && !(is_call_block && caller.is_undefined()))
    scope_->set(kCallerSymbol, std::move(caller));
  if (macro.uses_varargs)
    scope_->set(kVarargsSymbol, runtime_.checked(Value::tuple(std::move(varargs))));
  if (macro.uses_kwargs)
    scope_->set(kKwargsSymbol, runtime_.checked(Value::dict(std::move(kwargs))));
}

}  // namespace flotilla::chat
