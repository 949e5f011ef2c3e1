#include "flotilla/chat/jinja_value.h"

#include <algorithm>
#include <functional>

#include "flotilla/chat/jinja_runtime.h"

namespace flotilla::chat {

namespace {

constexpr std::size_t kMaxWeight = std::size_t{1} << 40;
std::size_t add_weight(std::size_t a, std::size_t b) { return std::min(a + b, kMaxWeight); }

ListPtr make_sequence(std::vector<Value> items, bool is_tuple) {
  auto object = std::make_shared<ListObject>();
  for (const Value& item : items) {
    object->depth = std::max(object->depth, item.depth() + 1);
    object->weight = add_weight(object->weight, item.weight());
  }
  object->items = std::move(items);
  object->is_tuple = is_tuple;
  return object;
}

std::size_t hash_text(std::string_view text) { return std::hash<std::string_view>()(text); }

}  // namespace

Value Value::list(std::vector<Value> items) {
  return Value(Data(make_sequence(std::move(items), false)));
}
Value Value::tuple(std::vector<Value> items) {
  return Value(Data(make_sequence(std::move(items), true)));
}

Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  return Value(Data(DictPtr(std::make_shared<DictObject>(std::move(items)))));
}

Value Value::callable(Callable callable) {
  return Value(
      Data(std::shared_ptr<const Callable>(std::make_shared<Callable>(std::move(callable)))));
}

bool Value::truthy() const {
  if (is_bool()) return as_bool();
  if (is_int()) return as_int() != 0;
  if (is_float()) return as_float() != 0;
  if (is_text()) return !as_text().empty();
  if (is_sequence()) return !as_list()->items.empty();
  if (is_dict()) return !as_dict()->items().empty();
  return !is_undefined() && !is_none();
}

double Value::number() const {
  if (is_bool()) return as_bool() ? 1 : 0;
  if (is_int()) return static_cast<double>(as_int());
  if (is_big()) return static_cast<double>(as_big());
  return as_float();
}

bool Value::to_int(std::int64_t& out) const {
  if (is_bool()) {
    out = as_bool() ? 1 : 0;
  } else if (is_int()) {
    out = as_int();
  } else {
    return false;
  }
  return true;
}

std::size_t Value::depth() const {
  if (is_sequence()) return as_list()->depth;
  if (is_dict()) return as_dict()->depth();
  if (is_loop()) return as_loop()->items ? as_loop()->items->depth + 1 : 1;
  if (is_callable()) return as_callable().self.depth() + 1;
  return 0;
}

std::size_t Value::weight() const {
  if (is_text()) return 1 + as_text().size() / 16;
  if (is_sequence()) return as_list()->weight;
  if (is_dict()) return as_dict()->weight();
  return 1;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int() || is_big()) return "int";
  if (is_float()) return "float";
  if (is_text()) return "str";
  if (is_sequence()) return as_list()->is_tuple ? "tuple" : "list";
  if (is_dict()) return "dict";
  if (is_namespace()) return "Namespace";
  if (is_loop()) return "LoopContext";
  return "function";
}

DictObject::DictObject(std::vector<std::pair<Value, Value>> items) {
  items_.reserve(items.size());
  std::vector<std::pair<std::size_t, std::uint32_t>> hashes;
  hashes.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    hashes.push_back({hash_value(items[i].first), static_cast<std::uint32_t>(i)});
  }
  std::sort(hashes.begin(), hashes.end());
  // Equal keys are neighbours by hash: the first keeps its place, the last gives the value.
  std::vector<char> dropped(items.size(), 0);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (dropped[hashes[i].second]) continue;
    for (std::size_t j = i + 1; j < hashes.size() && hashes[j].first == hashes[i].first; ++j) {
      auto& earlier = items[hashes[i].second];
      auto& later = items[hashes[j].second];
      if (dropped[hashes[j].second] || !values_equal(earlier.first, later.first)) continue;
      earlier.second = later.second;
      dropped[hashes[j].second] = 1;
    }
  }
  std::vector<std::uint32_t> place(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (dropped[i]) continue;
    place[i] = static_cast<std::uint32_t>(items_.size());
    depth_ = std::max({depth_, items[i].first.depth() + 1, items[i].second.depth() + 1});
    weight_ = add_weight(weight_, items[i].first.weight() + items[i].second.weight());
    items_.push_back(std::move(items[i]));
  }
  for (const auto& [hash, position] : hashes) {
    if (!dropped[position]) index_.push_back({hash, place[position]});
  }
}

template <class Equal>
const Value* DictObject::lookup(std::size_t hash, Equal&& equal) const {
  auto it = std::lower_bound(index_.begin(), index_.end(),
                             std::pair<std::size_t, std::uint32_t>(hash, 0));
  for (; it != index_.end() && it->first == hash; ++it) {
    if (equal(items_[it->second].first)) return &items_[it->second].second;
  }
  return nullptr;
}

const Value* DictObject::find(const Value& key) const {
  return lookup(hash_value(key), [&key](const Value& other) { return values_equal(key, other); });
}

const Value* DictObject::find(std::string_view key) const {
  return lookup(hash_text(key), [key](const Value& other) {
    return other.is_text() && other.as_text().view() == key;
  });
}

const Value* NamespaceObject::find(std::string_view name) const {
  for (const auto& field : fields) {
    if (field.first == name) return &field.second;
  }
  return nullptr;
}

void NamespaceObject::set(std::string_view name, Value value) {
  for (auto& field : fields) {
    if (field.first == name) {
      field.second = std::move(value);
      return;
    }
  }
  fields.emplace_back(name, std::move(value));
}

std::size_t hash_value(const Value& value) {
  if (value.is_text()) return hash_text(value.as_text().view());
  if (value.is_number()) return std::hash<double>()(value.number());
  if (value.is_sequence()) {
    std::size_t hash = 17;
    for (const Value& item : value.as_list()->items) hash = hash * 31 + hash_value(item);
    return hash;
  }
  return value.is_none() ? 1 : 2;
}

namespace {

bool numbers_equal(const Value& a, const Value& b) {
  std::int64_t x = 0;
  std::int64_t y = 0;
  if (a.to_int(x) && b.to_int(y)) return x == y;
  if (a.is_big() && b.is_big()) return a.as_big() == b.as_big();
  if (a.is_big() != b.is_big() && !a.is_float() && !b.is_float()) return false;
  return a.number() == b.number();
}

}  // namespace

bool values_equal(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) return a.as_text().view() == b.as_text().view();
  if (a.is_number() && b.is_number()) return numbers_equal(a, b);
  if (a.is_none() || a.is_undefined())
    return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
  if (a.is_sequence() && b.is_sequence()) {
    const ListObject& x = *a.as_list();
    const ListObject& y = *b.as_list();
    return &x == &y || (x.is_tuple == y.is_tuple && x.items.size() == y.items.size() &&
                        std::equal(x.items.begin(), x.items.end(), y.items.begin(), values_equal));
  }
  if (a.is_dict() && b.is_dict()) {
    const DictObject& x = *a.as_dict();
    const DictObject& y = *b.as_dict();
    if (&x == &y) return true;
    if (x.items().size() != y.items().size()) return false;
    for (const auto& [key, value] : x.items()) {
      const Value* other = y.find(key);
      if (!other || !values_equal(value, *other)) return false;
    }
    return true;
  }
  if (a.is_namespace() && b.is_namespace()) return &a.as_namespace() == &b.as_namespace();
  if (a.is_loop() && b.is_loop()) return a.as_loop() == b.as_loop();
  if (a.is_callable() && b.is_callable()) return &a.as_callable() == &b.as_callable();
  return false;
}

void charge_comparison(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge(std::min(a.weight(), b.weight()));
}

int compare_values(Runtime& runtime, const Value& a, const Value& b) {
  charge_comparison(runtime, a, b);
  if (a.is_text() && b.is_text()) {
    // Byte order of UTF-8 is the order of code points.
    const int order = a.as_text().view().compare(b.as_text().view());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is_number() && b.is_number()) {
    std::int64_t x = 0;
    std::int64_t y = 0;
    if (a.to_int(x) && b.to_int(y)) return x < y ? -1 : x > y ? 1 : 0;
    const double p = a.number();
    const double q = b.number();
    return p < q ? -1 : p > q ? 1 : 0;
  }
  if (a.is_sequence() && b.is_sequence() && a.as_list()->is_tuple == b.as_list()->is_tuple) {
    const auto& x = a.as_list()->items;
    const auto& y = b.as_list()->items;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (values_equal(x[i], y[i])) continue;
      return compare_values(runtime, x[i], y[i]);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  if (a.is_undefined()) runtime.fail_undefined(a);
  if (b.is_undefined()) runtime.fail_undefined(b);
  runtime.fail("'" + std::string(a.type_name()) + "' and '" + std::string(b.type_name()) +
               "' cannot be ordered");
}

}  // namespace flotilla::chat
