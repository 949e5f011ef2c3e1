// Walks the program of a template. One per render.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "flotilla/chat/jinja_ast.h"
#include "flotilla/chat/jinja_parser.h"
#include "flotilla/chat/jinja_runtime.h"
#include "flotilla/chat/marked_text.h"

namespace flotilla::chat {

// Variables of one block. Values that outlive it point here, so a scope that a macro captured lives
// until the render ends.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> variables;
  bool is_captured = false;

  Value* find(Symbol symbol);
  void set(Symbol symbol, Value value);
};

class Interpreter {
 public:
  // Both must outlive the interpreter.
  Interpreter(const ParsedTemplate& program, Runtime& runtime);

  // Before run(); ignored when the template never mentions `name`.
  void set_global(const std::string& name, Value value);
  // Throws TemplateError.
  SpanText run();

 private:
  enum class Flow { kNext, kBreak, kContinue };
  static constexpr std::size_t kMaxDepth =
      1'000;  // nested evaluations; each costs well under 2 KiB of stack

  class DepthGuard {
   public:
    explicit DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) {
      if (++interpreter_.depth_ > kMaxDepth)
        interpreter_.runtime_.fail("the template recurses too deeply");
    }
    ~DepthGuard() { --interpreter_.depth_; }

   private:
    Interpreter& interpreter_;
  };

  // A scope below `parent` that is current until the end of the block.
  class ScopeGuard {
   public:
    ScopeGuard(Interpreter& interpreter, Scope* parent);
    ~ScopeGuard();

   private:
    Interpreter& interpreter_;
    Scope* previous_;
  };

  // Collects output while it lives.
  class OutputGuard {
   public:
    explicit OutputGuard(Interpreter& interpreter)
        : interpreter_(interpreter), previous_(interpreter.output_) {
      interpreter.output_ = &builder_;
    }
    ~OutputGuard() { interpreter_.output_ = previous_; }
    Value take() { return Value::text(builder_.take()); }

   private:
    Interpreter& interpreter_;
    TextBuilder* previous_;
    TextBuilder builder_;
  };

  // Statements (jinja_interpreter.cc)
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_if(const Statement& statement);
  void execute_for(const Statement& statement);
  void run_loop(const Statement& statement, ListPtr items, Scope* scope, std::size_t level);
  ListPtr filter_items(const Statement& statement, const ListPtr& items, Scope* scope);
  void execute_set_block(const Statement& statement);
  void execute_with(const Statement& statement);
  void execute_call_block(const Statement& statement);
  void execute_filter_block(const Statement& statement);
  void assign(const Target& target, Value value);
  void write(const MarkedText& text);
  Scope* capture_scope();

  // Calls (jinja_interpreter.cc)
  Value call(const Value& callee, Args& args);
  Value call_macro(const Statement& macro, Scope* scope, Args& args);
  void bind_parameters(const Statement& macro, Args& args);
  Args evaluate_arguments(const ArgumentList& list);

  // Expressions (jinja_evaluator.cc)
  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_items(const Expression& expression);
  Value evaluate_unary(const Expression& expression);
  Value evaluate_binary(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_call(const Expression& expression);
  Value evaluate_filter(const Expression& expression, const Value* input);
  Value evaluate_test(const Expression& expression);
  Value filter_chain(const Expression& chain, Value input);

  const ParsedTemplate& program_;
  Runtime& runtime_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  std::deque<std::string> names_;  // of keywords that came out of a dict
  Scope* scope_ = nullptr;
  TextBuilder* output_ = nullptr;
  std::size_t depth_ = 0;
};

// Operators on values, shared with filters (jinja_operators.cc).
Value apply_operator(Runtime& runtime, Operator op, const Value& left, const Value& right);
bool apply_comparison(Runtime& runtime, Operator op, const Value& left, const Value& right);
Value slice_value(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                  const Value& step);

}  // namespace flotilla::chat
