#include <algorithm>
#include <cmath>
#include <utility>

#include "flotilla/chat/jinja_interpreter.h"
#include "flotilla/chat/unicode_text.h"

namespace flotilla::chat {

namespace {

[[noreturn]] void fail_types(Runtime& runtime, std::string_view op, const Value& a,
                             const Value& b) {
  if (a.is_undefined()) runtime.fail_undefined(a);
  if (b.is_undefined()) runtime.fail_undefined(b);
  runtime.fail("'" + std::string(a.type_name()) + "' " + std::string(op) + " '" +
               std::string(b.type_name()) + "' is not defined");
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (value.is_text()) {
    const MarkedText& text = value.as_text();
    if (text.size() && times > runtime.max_text() / text.size())
      runtime.check_text(runtime.max_text() + 1);
    runtime.check_text(text.size() * times);
    TextBuilder out;
    for (std::size_t i = 0; i < times && !text.empty(); ++i) out.append(text);
    return Value::text(out.take());
  }
  const auto& items = value.as_list()->items;
  std::vector<Value> out;
  for (std::size_t i = 0; i < times && !items.empty(); ++i) {
    runtime.charge(items.size());
    out.insert(out.end(), items.begin(), items.end());
  }
  return value.as_list()->is_tuple ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

Value integer_operation(Runtime& runtime, Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kFloorDivide:
    case Operator::kModulo:
      if (b == 0) runtime.fail("division by zero");
      if (b == -1) {
        if (op == Operator::kModulo) return Value::integer(0);
        overflows = __builtin_sub_overflow(std::int64_t{0}, a, &result);
      } else {
        result = floor_divide(a, b);
        if (op == Operator::kModulo) result = a - result * b;
      }
      break;
    default: {  // kPower with b >= 0
      result = 1;
      for (std::int64_t base = a; b > 0 && !overflows; b >>= 1) {
        runtime.charge(1);
        if (b & 1) overflows = __builtin_mul_overflow(result, base, &result);
        if (b > 1 && __builtin_mul_overflow(base, base, &base)) overflows = true;
      }
    }
  }
  if (overflows) runtime.fail("an integer exceeds 64 bits");
  return Value::integer(result);
}

Value float_operation(Runtime& runtime, Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::real(a + b);
    case Operator::kSubtract:
      return Value::real(a - b);
    case Operator::kMultiply:
      return Value::real(a * b);
    case Operator::kPower:
      return Value::real(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) runtime.fail("division by zero");
  if (op == Operator::kDivide) return Value::real(a / b);
  if (op == Operator::kFloorDivide) return Value::real(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value::real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Value join_lists(Runtime& runtime, const Value& a, const Value& b) {
  const auto& x = a.as_list()->items;
  const auto& y = b.as_list()->items;
  runtime.charge(x.size() + y.size());
  std::vector<Value> items(x);
  items.insert(items.end(), y.begin(), y.end());
  return a.as_list()->is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

std::string_view operator_name(Operator op) {
  static constexpr std::string_view kNames[] = {"+", "-", "*", "/", "//", "%", "**", "~"};
  return kNames[static_cast<std::size_t>(op)];
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_text()) {
    if (!item.is_text()) fail_types(runtime, "in", item, container);
    runtime.charge_bytes(container.as_text().size());
    return container.as_text().view().find(item.as_text().view()) != std::string_view::npos;
  }
  if (container.is_dict()) runtime.charge(item.weight());
  if (container.is_dict()) return container.as_dict()->find(item) != nullptr;
  const ListPtr items = runtime.iterate(container);
  return std::any_of(items->items.begin(), items->items.end(), [&](const Value& other) {
    charge_comparison(runtime, item, other);
    return values_equal(item, other);
  });
}

}  // namespace

Value apply_operator(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (op == Operator::kConcat)
    return Value::text(runtime.concat(runtime.to_text(a), runtime.to_text(b)));
  if (op == Operator::kAdd) {
    if (a.is_text() && b.is_text()) return Value::text(runtime.concat(a.as_text(), b.as_text()));
    if (a.is_sequence() && b.is_sequence() && a.as_list()->is_tuple == b.as_list()->is_tuple) {
      return runtime.checked(join_lists(runtime, a, b));
    }
  }
  std::int64_t x = 0;
  std::int64_t y = 0;
  if (op == Operator::kMultiply) {
    if ((a.is_text() || a.is_sequence()) && b.to_int(y)) return repeat(runtime, a, y);
    if ((b.is_text() || b.is_sequence()) && a.to_int(x)) return repeat(runtime, b, x);
  }
  if (op == Operator::kModulo && a.is_text()) {
    Args args;
    if (b.is_sequence() && b.as_list()->is_tuple) {
      args.positional = b.as_list()->items;
    } else {
      args.positional.push_back(b);
    }
    return find_filter("format")(runtime, a, args);
  }
  if (!a.is_number() || !b.is_number()) fail_types(runtime, operator_name(op), a, b);
  if (a.to_int(x) && b.to_int(y) && op != Operator::kDivide && !(op == Operator::kPower && y < 0)) {
    return integer_operation(runtime, op, x, y);
  }
  return float_operation(runtime, op, a.number(), b.number());
}

bool apply_comparison(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual:
    case Operator::kNotEqual:
      charge_comparison(runtime, a, b);
      return values_equal(a, b) == (op == Operator::kEqual);
    case Operator::kIn:
      return contains(runtime, b, a);
    case Operator::kNotIn:
      return !contains(runtime, b, a);
    case Operator::kLess:
      return compare_values(runtime, a, b) < 0;
    case Operator::kLessEqual:
      return compare_values(runtime, a, b) <= 0;
    case Operator::kGreater:
      return compare_values(runtime, a, b) > 0;
    default:
      return compare_values(runtime, a, b) >= 0;
  }
}

namespace {

// Python's slice.indices(): a bound for a sequence of `count` elements.
std::int64_t slice_bound(Runtime& runtime, const Value& bound, std::int64_t count,
                         std::int64_t step, bool is_start) {
  const std::int64_t lowest = step < 0 ? -1 : 0;
  const std::int64_t highest = step < 0 ? count - 1 : count;
  if (bound.is_none()) return (step > 0) == is_start ? lowest : highest;
  std::int64_t index = 0;
  if (!bound.to_int(index)) {
    if (bound.is_undefined()) runtime.fail_undefined(bound);
    runtime.fail("a slice needs integers");
  }
  if (index < 0) index += count;
  return std::clamp(index, lowest, highest);
}

}  // namespace

Value slice_value(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                  const Value& step) {
  if (object.is_undefined()) runtime.fail_undefined(object);
  if (!object.is_text() && !object.is_sequence()) {
    runtime.fail("'" + std::string(object.type_name()) + "' cannot be sliced");
  }
  std::int64_t by = 1;
  if (!step.is_none() && !step.to_int(by)) runtime.fail("a slice needs integers");
  if (by == 0) runtime.fail("the step of a slice is zero");
  const auto count = static_cast<std::int64_t>(runtime.length(object));
  by = std::clamp<std::int64_t>(by, -count - 1, count + 1);
  if (by == 0) by = 1;
  const std::int64_t from = slice_bound(runtime, start, count, by, true);
  const std::int64_t to = slice_bound(runtime, stop, count, by, false);
  if (object.is_text() && by == 1) {
    const MarkedText& text = object.as_text();
    if (from >= to) return Value::text(MarkedText());
    const std::size_t first = char_offset(text.view(), static_cast<std::size_t>(from));
    const std::size_t size =
        char_offset(text.view().substr(first), static_cast<std::size_t>(to - from));
    return Value::text(text.substr(first, size));
  }
  const ListPtr items = runtime.iterate(object);
  std::vector<Value> picked;
  for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    runtime.charge(1);
    picked.push_back(items->items[static_cast<std::size_t>(i)]);
  }
  if (object.is_sequence()) {
    return items->is_tuple ? Value::tuple(std::move(picked)) : Value::list(std::move(picked));
  }
  TextBuilder out;
  for (const Value& piece : picked) out.append(piece.as_text());
  return Value::text(out.take());
}

}  // namespace flotilla::chat
