// Values of the template language. Containers are immutable (as in the sandbox that publishers test
// against), except namespaces, which only the interpreter changes. One render, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "flotilla/chat/marked_text.h"

namespace flotilla::chat {

class Value;
class Runtime;
struct Args;
struct Scope;
struct Statement;

struct Undefined {
  const std::string* name = nullptr;  // owned by the program; nullptr when computed
};
struct None {};
struct ListObject;
class DictObject;
struct NamespaceObject;
struct LoopObject;
struct Callable;
using ListPtr = std::shared_ptr<const ListObject>;
using DictPtr = std::shared_ptr<const DictObject>;

class Value {
 public:
  using NativeFunction = Value (*)(Runtime&, const Value& self, const Args&);

  Value() = default;  // undefined
  static Value undefined(const std::string* name) { return Value(Data(Undefined{name})); }
  static Value none() { return Value(Data(None{})); }
  static Value boolean(bool b) { return Value(Data(b)); }
  static Value integer(std::int64_t i) { return Value(Data(i)); }
  static Value big(std::uint64_t u) { return Value(Data(u)); }  // only above the range of int64
  static Value real(double d) { return Value(Data(d)); }
  static Value text(MarkedText t) { return Value(Data(std::move(t))); }
  static Value text(std::string bytes, bool trusted) {
    return text(MarkedText(std::move(bytes), trusted));
  }
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(
      std::vector<std::pair<Value, Value>> items);  // a later equal key replaces the value
  static Value name_space(std::shared_ptr<NamespaceObject> object) {
    return Value(Data(std::move(object)));
  }
  static Value loop(std::shared_ptr<LoopObject> object) { return Value(Data(std::move(object))); }
  static Value callable(Callable callable);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(data_); }
  bool is_big() const { return std::holds_alternative<std::uint64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_text() const { return std::holds_alternative<MarkedText>(data_); }
  bool is_sequence() const { return std::holds_alternative<ListPtr>(data_); }  // list or tuple
  bool is_dict() const { return std::holds_alternative<DictPtr>(data_); }
  bool is_namespace() const {
    return std::holds_alternative<std::shared_ptr<NamespaceObject>>(data_);
  }
  bool is_loop() const { return std::holds_alternative<std::shared_ptr<LoopObject>>(data_); }
  bool is_callable() const {
    return std::holds_alternative<std::shared_ptr<const Callable>>(data_);
  }
  // Booleans count as numbers, as in Python.
  bool is_number() const { return is_bool() || is_int() || is_big() || is_float(); }

  const std::string* undefined_name() const { return std::get<Undefined>(data_).name; }
  bool as_bool() const { return std::get<bool>(data_); }
  std::int64_t as_int() const { return std::get<std::int64_t>(data_); }
  std::uint64_t as_big() const { return std::get<std::uint64_t>(data_); }
  double as_float() const { return std::get<double>(data_); }
  const MarkedText& as_text() const { return std::get<MarkedText>(data_); }
  const ListPtr& as_list() const { return std::get<ListPtr>(data_); }
  const DictPtr& as_dict() const { return std::get<DictPtr>(data_); }
  NamespaceObject& as_namespace() const {
    return *std::get<std::shared_ptr<NamespaceObject>>(data_);
  }
  const std::shared_ptr<LoopObject>& as_loop() const {
    return std::get<std::shared_ptr<LoopObject>>(data_);
  }
  const Callable& as_callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }

  bool truthy() const;
  // Any number as a double.
  double number() const;
  // An integer or boolean as int64; false when it is none or too large.
  bool to_int(std::int64_t& out) const;
  // Levels of containers below and including this value. Bounded by the runtime, since freeing and
  // printing recurse.
  std::size_t depth() const;
  // Nodes of the value unfolded, long texts counting more: what walking it costs. Shared parts
  // count every time.
  std::size_t weight() const;
  // "str", "list", "NoneType", ... as Python names them in messages.
  std::string_view type_name() const;

 private:
  using Data = std::variant<Undefined, None, bool, std::int64_t, std::uint64_t, double, MarkedText,
                            ListPtr, DictPtr, std::shared_ptr<NamespaceObject>,
                            std::shared_ptr<LoopObject>, std::shared_ptr<const Callable>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

struct ListObject {
  std::vector<Value> items;
  bool is_tuple = false;
  std::size_t depth = 1;
  std::size_t weight = 1;
};

// Ordered, with a hash index.
class DictObject {
 public:
  explicit DictObject(std::vector<std::pair<Value, Value>> items);
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  std::size_t depth() const { return depth_; }
  std::size_t weight() const { return weight_; }

 private:
  template <class Equal>
  const Value* lookup(std::size_t hash, Equal&& equal) const;
  std::vector<std::pair<Value, Value>> items_;
  std::vector<std::pair<std::size_t, std::uint32_t>> index_;  // hash and position, sorted
  std::size_t depth_ = 1;
  std::size_t weight_ = 1;
};

struct NamespaceObject {
  std::vector<std::pair<std::string, Value>> fields;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct LoopObject {
  ListPtr items;
  std::size_t index0 = 0;
  std::size_t level = 0;                 // nesting of a recursive loop
  const Statement* recursive = nullptr;  // the loop that loop(...) runs again
  Scope* scope = nullptr;                // where it was entered
  std::vector<Value> last_changed;       // arguments of the last changed()
  bool has_changed = false;
};

struct Callable {
  enum class Kind { kNative, kMacro, kCaller, kLoop };
  Kind kind = Kind::kNative;
  Value::NativeFunction function = nullptr;  // kNative
  Value self;                                // what a method is bound to; the loop for kLoop
  const Statement* statement = nullptr;      // kMacro, kCaller
  Scope* scope = nullptr;                    // where it was defined
};

// Charges for values_equal(a, b), which itself is free.
void charge_comparison(Runtime& runtime, const Value& a, const Value& b);
// Equality, order and membership as Python has them.
bool values_equal(const Value& a, const Value& b);
// -1, 0, 1; fails through `runtime` when the two have no order.
int compare_values(Runtime& runtime, const Value& a, const Value& b);
std::size_t hash_value(const Value& value);

}  // namespace flotilla::chat
