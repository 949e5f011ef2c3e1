#include <algorithm>
#include <string_view>

#include "flotilla/chat/jinja_arguments.h"
#include "flotilla/chat/jinja_interpreter.h"
#include "flotilla/chat/jinja_text_functions.h"
#include "flotilla/chat/unicode_text.h"

namespace flotilla::chat {

namespace {

using Check = bool (*)(const Value&);
template <Check check>
bool test_kind(Runtime&, const Value& self, const Args&) {
  return check(self);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_text(const Value& v) { return v.is_text(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
// An undefined value iterates as nothing, and Python's str and dict count as sequences.
bool is_sequence(const Value& v) {
  return v.is_sequence() || v.is_text() || v.is_dict() || v.is_undefined();
}
bool is_iterable(const Value& v) { return is_sequence(v) || v.is_loop(); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_integer(const Value& v) { return v.is_int() || v.is_big(); }
bool is_float(const Value& v) { return v.is_float(); }
bool is_boolean(const Value& v) { return v.is_bool(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool is_callable(const Value& v) {
  return v.is_callable() || (v.is_loop() && v.as_loop()->recursive);
}
bool is_never(const Value&) { return false; }

std::int64_t rest_of_division(Runtime& rt, const Value& self, std::int64_t by) {
  const Value rest = apply_operator(rt, Operator::kModulo, self, Value::integer(by));
  return rest.number() == 0 ? 0 : 1;
}
bool test_odd(Runtime& rt, const Value& self, const Args&) {
  return rest_of_division(rt, self, 2) != 0;
}
bool test_even(Runtime& rt, const Value& self, const Args&) {
  return rest_of_division(rt, self, 2) == 0;
}
bool test_divisible(Runtime& rt, const Value& self, const Args& args) {
  return apply_operator(rt, Operator::kModulo, self, required_argument(rt, args, 0, "num"))
             .number() == 0;
}

template <Operator op>
bool test_compare(Runtime& rt, const Value& self, const Args& args) {
  return apply_comparison(rt, op, self, required_argument(rt, args, 0, "other"));
}
bool test_same(Runtime& rt, const Value& self, const Args& args) {
  const Value& other = required_argument(rt, args, 0, "other");
  if (self.type_name() != other.type_name()) return false;
  if (self.is_sequence()) return self.as_list() == other.as_list();
  if (self.is_dict()) return self.as_dict() == other.as_dict();
  return apply_comparison(rt, Operator::kEqual, self, other);
}

template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
bool test_casing(Runtime& rt, const Value& self, const Args&) {
  const MarkedText text = rt.to_text(self);
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text.view(), at);
    if (unwanted(c)) return false;
    any = any || wanted(c);
  }
  return any;
}

bool test_filter(Runtime& rt, const Value& self, const Args&) {
  return find_filter(rt.to_text(self).view()) != nullptr;
}
bool test_test(Runtime& rt, const Value& self, const Args&) {
  return find_test(rt.to_text(self).view()) != nullptr;
}

struct Entry {
  std::string_view name;
  TestFunction function;
};
constexpr Entry kTests[] = {
    {"defined", &test_kind<is_defined>},
    {"undefined", &test_kind<is_undefined>},
    {"none", &test_kind<is_none>},
    {"string", &test_kind<is_text>},
    {"mapping", &test_kind<is_mapping>},
    {"sequence", &test_kind<is_sequence>},
    {"iterable", &test_kind<is_iterable>},
    {"number", &test_kind<is_number>},
    {"integer", &test_kind<is_integer>},
    {"float", &test_kind<is_float>},
    {"boolean", &test_kind<is_boolean>},
    {"true", &test_kind<is_true>},
    {"false", &test_kind<is_false>},
    {"callable", &test_kind<is_callable>},
    {"escaped", &test_kind<is_never>},
    {"odd", &test_odd},
    {"even", &test_even},
    {"divisibleby", &test_divisible},
    {"eq", &test_compare<Operator::kEqual>},
    {"equalto", &test_compare<Operator::kEqual>},
    {"==", &test_compare<Operator::kEqual>},
    {"ne", &test_compare<Operator::kNotEqual>},
    {"!=", &test_compare<Operator::kNotEqual>},
    {"lt", &test_compare<Operator::kLess>},
    {"lessthan", &test_compare<Operator::kLess>},
    {"<", &test_compare<Operator::kLess>},
    {"le", &test_compare<Operator::kLessEqual>},
    {"<=", &test_compare<Operator::kLessEqual>},
    {"gt", &test_compare<Operator::kGreater>},
    {"greaterthan", &test_compare<Operator::kGreater>},
    {">", &test_compare<Operator::kGreater>},
    {"ge", &test_compare<Operator::kGreaterEqual>},
    {">=", &test_compare<Operator::kGreaterEqual>},
    {"in", &test_compare<Operator::kIn>},
    {"sameas", &test_same},
    {"lower", &test_casing<&is_lower, &is_upper>},
    {"upper", &test_casing<&is_upper, &is_lower>},
    {"filter", &test_filter},
    {"test", &test_test},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto* it = std::find_if(std::begin(kTests), std::end(kTests),
                                [name](const Entry& e) { return e.name == name; });
  return it == std::end(kTests) ? nullptr : it->function;
}

}  // namespace flotilla::chat
