// What the parts of the interpreter share during one render: the budget, failure, and conversion of
// values to text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "flotilla/chat/chat_template.h"
#include "flotilla/chat/jinja_value.h"

namespace flotilla::chat {

// Unwinds lexer, parser and evaluator; caught by ChatTemplate, never leaves this folder.
struct TemplateError {
  std::string message;
  std::size_t line = 0;
  std::size_t column = 0;  // 0 when only the line is known
  bool is_raised = false;  // by raise_exception: the message is the template's own sentence
};

// Arguments of a call, evaluated.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;

  // The argument at `position` or called `name`; nullptr when absent.
  const Value* get(std::size_t position, std::string_view name) const;
  std::size_t size() const { return positional.size() + named.size(); }
};

class Runtime {
 public:
  Runtime(const RenderLimits& limits, std::int64_t render_time)
      : limits_(limits), render_time_(render_time) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  // Counts work done; fails when the budget is spent. Memory is bounded with it: each unit pays for
  // 16 bytes of text or one element.
  void charge(std::size_t units) {
    steps_ += units;
    if (steps_ > limits_.max_steps) fail_steps();
  }
  void charge_bytes(std::size_t bytes) { charge(1 + bytes / 16); }
  // Fails unless a text of `bytes` may exist; also charges it.
  void check_text(std::size_t bytes);
  // Fails when `value` nests deeper than can be freed and printed safely.
  Value checked(Value value);

  [[noreturn]] void fail(std::string message) const {
    throw TemplateError{std::move(message), line_};
  }
  [[noreturn]] void fail_undefined(const Value& value) const;
  [[noreturn]] void fail_argument(std::string_view callee, std::string_view message) const;

  std::int64_t render_time() const { return render_time_; }
  void set_line(std::size_t line) { line_ = line; }
  std::size_t line() const { return line_; }
  std::size_t max_text() const { return limits_.max_output_bytes; }

  // str(value). Numbers are never trusted; a text keeps its marks; containers are untrusted if any
  // part is.
  MarkedText to_text(const Value& value);
  // repr(value), without marks.
  std::string repr(const Value& value);
  MarkedText concat(const MarkedText& a, const MarkedText& b);

  // Keeps `object` until the render ends and empties it then: values that refer to it may form a
  // circle.
  void adopt(std::shared_ptr<NamespaceObject> object) { namespaces_.push_back(std::move(object)); }
  void adopt(std::shared_ptr<LoopObject> object) { loops_.push_back(std::move(object)); }

  // The elements that a loop over `value` visits; fails for what cannot be iterated.
  ListPtr iterate(const Value& value);
  // len(value)
  std::size_t length(const Value& value);

  // obj.name and obj[key], with methods; undefined when absent. `name` must outlive the render.
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  // The filters' "a.b.0" paths.
  // Undefined steps become `fallback` when it is given.
  Value attribute_path(const Value& object, const Value& path, const Value* fallback = nullptr);

 private:
  [[noreturn]] void fail_steps() const;
  const RenderLimits limits_;
  const std::int64_t render_time_;
  std::size_t steps_ = 0;
  std::size_t line_ = 0;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::vector<std::shared_ptr<LoopObject>> loops_;
};

// Containers that a template builds nest no deeper.
inline constexpr std::size_t kMaxValueDepth = 200;

// True when every text inside `value` is trusted and no number is.
bool is_all_trusted(const Value& value);

// json.dumps as the Hugging Face filter calls it.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string dump_json(Runtime& runtime, const Value& value, const JsonStyle& style);

// Python's repr of a float.
std::string format_float(double d);

using FilterFunction = Value::NativeFunction;
using TestFunction = bool (*)(Runtime&, const Value& self, const Args&);
// nullptr when there is none of that name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
// Methods of str, dict and list values.
Value::NativeFunction find_method(const Value& object, std::string_view name);
// range, dict, strftime_now, raise_exception; `namespace` belongs to the interpreter.
Value::NativeFunction find_global(std::string_view name);

}  // namespace flotilla::chat
