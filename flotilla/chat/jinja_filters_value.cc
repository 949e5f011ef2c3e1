#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_map>

#include "flotilla/base/text.h"
#include "flotilla/chat/jinja_arguments.h"
#include "flotilla/chat/jinja_filters.h"
#include "flotilla/chat/jinja_interpreter.h"
#include "flotilla/chat/jinja_text_functions.h"

namespace flotilla::chat {

namespace {

Value filter_default(Runtime&, const Value& self, const Args& args) {
  if (!self.is_undefined() && (self.truthy() || !bool_argument(args, 1, "boolean", false)))
    return self;
  const Value* fallback = args.get(0, "default_value");
  return fallback ? *fallback : Value::text(MarkedText());
}

Value filter_tojson(Runtime& rt, const Value& self, const Args& args) {
  JsonStyle style;
  style.ensure_ascii = bool_argument(args, 0, "ensure_ascii", false);
  style.sort_keys = bool_argument(args, 3, "sort_keys", false);
  if (const Value* indent = args.get(1, "indent"); indent && !indent->is_none()) {
    style.has_indent = true;
    if (indent->is_text()) {
      style.indent = std::string(indent->as_text().view());
    } else {
      const std::int64_t blanks = int_argument(rt, args, 1, "indent", 0);
      style.indent.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(blanks, 0, 100)), ' ');
    }
    if (style.indent.size() > 100) rt.fail_argument("tojson", "the indent is too long");
    style.item_separator = ",";
  }
  bool is_trusted = is_all_trusted(self);
  if (const Value* pair = args.get(2, "separators"); pair && !pair->is_none()) {
    const ListPtr parts = rt.iterate(*pair);
    if (parts->items.size() != 2) rt.fail_argument("tojson", "separators are no pair");
    style.item_separator = std::string(rt.to_text(parts->items[0]).view());
    style.key_separator = std::string(rt.to_text(parts->items[1]).view());
    if (style.item_separator.size() + style.key_separator.size() > 100)
      rt.fail_argument("tojson", "separators are too long");
    is_trusted = is_trusted && is_all_trusted(*pair);
  }
  if (const Value* indent = args.get(1, "indent"); indent && indent->is_text()) {
    is_trusted = is_trusted && is_all_trusted(*indent);
  }
  return Value::text(dump_json(rt, self, style), is_trusted);
}

std::optional<double> parse_float(std::string_view text) {
  text = trim_ascii(text);
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  double number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ptr != text.data() + text.size() || text.empty()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) return std::nullopt;
  if (result.ec != std::errc()) return std::nullopt;
  return number;
}

std::optional<std::int64_t> parse_int(std::string_view text, int base) {
  text = trim_ascii(text);
  const bool is_negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked && (base == marked || base == 0)) {
      base = marked;
      text.remove_prefix(2);
    }
  }
  std::string digits = is_negative ? "-" : "";
  for (const char c : text) {
    if (c != '_') digits += c;
  }
  std::int64_t number = 0;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base == 0 ? 10 : base);
  if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::optional<std::int64_t> truncated(double d) {
  if (!(std::abs(d) < 9.2e18)) return std::nullopt;
  return static_cast<std::int64_t>(d);
}

Value filter_int(Runtime& rt, const Value& self, const Args& args) {
  if (self.is_int() || self.is_big()) return self;
  std::optional<std::int64_t> number;
  if (self.is_text()) {
    const std::int64_t base = int_argument(rt, args, 1, "base", 10);
    if (base != 0 && (base < 2 || base > 36)) rt.fail_argument("int", "bad base");
    number = parse_int(self.as_text().view(), static_cast<int>(base));
    if (!number) {
      if (const auto real = parse_float(self.as_text().view())) number = truncated(*real);
    }
  } else if (self.is_number()) {
    number = truncated(self.number());
  }
  if (number) return Value::integer(*number);
  const Value* fallback = args.get(0, "default");
  return fallback ? *fallback : Value::integer(0);
}

Value filter_float(Runtime&, const Value& self, const Args& args) {
  if (self.is_number()) return Value::real(self.number());
  if (self.is_text()) {
    if (const auto number = parse_float(self.as_text().view())) return Value::real(*number);
  }
  const Value* fallback = args.get(0, "default");
  return fallback ? *fallback : Value::real(0);
}

Value filter_abs(Runtime& rt, const Value& self, const Args&) {
  if (self.is_undefined()) rt.fail_undefined(self);
  if (!self.is_number()) rt.fail_argument("abs", "the value is no number");
  if (self.is_big() || self.number() >= 0) return self;
  return apply_operator(rt, Operator::kSubtract, Value::integer(0), self);
}

// Python's round(): to the nearest, halves to even, decided on the exact decimal value.
double round_half_even(double value, int digits) {
  char buffer[400];
  if (digits >= 0) {
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, value,
                                      std::chars_format::fixed, std::min(digits, 40));
    double rounded = value;
    if (result.ec == std::errc()) std::from_chars(buffer, result.ptr, rounded);
    return rounded;
  }
  const double scale = std::pow(10.0, -digits);
  return std::nearbyint(value / scale) * scale;
}

Value filter_round(Runtime& rt, const Value& self, const Args& args) {
  if (self.is_undefined()) rt.fail_undefined(self);
  if (!self.is_number()) rt.fail_argument("round", "the value is no number");
  const int digits = static_cast<int>(
      std::clamp<std::int64_t>(int_argument(rt, args, 0, "precision", 0), -300, 300));
  const MarkedText method = text_argument(rt, args, 1, "method", MarkedText("common", true));
  if (method.view() == "common") {
    if (!self.is_float() && digits >= 0) return self;
    std::int64_t whole = 0;
    if (self.to_int(whole)) {
      const auto rounded = truncated(round_half_even(static_cast<double>(whole), digits));
      return rounded ? Value::integer(*rounded) : self;
    }
    return Value::real(round_half_even(self.number(), digits));
  }
  if (method.view() != "ceil" && method.view() != "floor")
    rt.fail_argument("round", "unknown method");
  const double scale = std::pow(10.0, digits);
  const double scaled = self.number() * scale;
  return Value::real((method.view() == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filter_attr(Runtime& rt, const Value& self, const Args& args) {
  return rt.item(self, required_argument(rt, args, 0, "name"));
}

constexpr FilterEntry kFilters[] = {
    {"default", &filter_default}, {"d", &filter_default},   {"tojson", &filter_tojson},
    {"int", &filter_int},         {"float", &filter_float}, {"abs", &filter_abs},
    {"round", &filter_round},     {"attr", &filter_attr},
};

}  // namespace

std::span<const FilterEntry> value_filters() { return kFilters; }

FilterFunction find_filter(std::string_view name) {
  static const auto* const kTable = [] {
    auto* table = new std::unordered_map<std::string_view, FilterFunction>();
    for (const auto filters : {text_filters(), list_filters(), value_filters()}) {
      for (const FilterEntry& entry : filters) table->emplace(entry.name, entry.function);
    }
    return table;
  }();
  const auto it = kTable->find(name);
  return it == kTable->end() ? nullptr : it->second;
}

}  // namespace flotilla::chat
