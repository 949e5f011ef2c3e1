#include "flotilla/chat/jinja_runtime.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "flotilla/chat/unicode_text.h"

namespace flotilla::chat {

const Value* Args::get(std::size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Runtime::~Runtime() {
  for (const auto& object : namespaces_) object->fields.clear();
  for (const auto& object : loops_) object->last_changed.clear();
}

void Runtime::check_text(std::size_t bytes) {
  if (bytes > limits_.max_output_bytes) {
    fail("a text exceeds " + std::to_string(limits_.max_output_bytes) + " bytes");
  }
  charge_bytes(bytes);
}

Value Runtime::checked(Value value) {
  if (value.depth() > kMaxValueDepth)
    fail("a value nests deeper than " + std::to_string(kMaxValueDepth));
  return value;
}

void Runtime::fail_steps() const {
  fail("the template needs more than " + std::to_string(limits_.max_steps) + " steps");
}

void Runtime::fail_undefined(const Value& value) const {
  const std::string* name = value.is_undefined() ? value.undefined_name() : nullptr;
  fail(name ? "'" + *name + "' is undefined" : "a value is undefined");
}

void Runtime::fail_argument(std::string_view callee, std::string_view message) const {
  fail(std::string(callee) + ": " + std::string(message));
}

MarkedText Runtime::concat(const MarkedText& a, const MarkedText& b) {
  if (a.size() + b.size() > limits_.max_output_bytes) check_text(a.size() + b.size());
  // Growing in place costs the right side only; a copy is charged at its size when the sum has
  // another buffer.
  MarkedText sum = a + b;
  charge_bytes(sum.view().data() == a.view().data() ? b.size() : sum.size());
  return sum;
}

std::string format_float(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  std::string sign = text[0] == '-' ? "-" : "";
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (digits.size() > 1) mantissa += "." + digits.substr(1);
    char tail[16];
    std::snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return sign + mantissa + tail;
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

bool is_all_trusted(const Value& value) {
  if (value.is_text()) return value.as_text().all_trusted();
  if (value.is_bool() || value.is_none() || value.is_undefined()) return true;
  if (value.is_sequence()) {
    const auto& items = value.as_list()->items;
    return std::all_of(items.begin(), items.end(), is_all_trusted);
  }
  if (value.is_dict()) {
    const auto& items = value.as_dict()->items();
    return std::all_of(items.begin(), items.end(), [](const auto& item) {
      return is_all_trusted(item.first) && is_all_trusted(item.second);
    });
  }
  return false;
}

namespace {

std::string quote(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char mark = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, mark);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t c = next_char(text, at);
    if (c == static_cast<unsigned char>(mark) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c) || c > 0x10ffff) {
      out += text.substr(start, at - start);
    } else {
      char code[12];
      std::snprintf(code, sizeof code,
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
      out += code;
    }
  }
  out += mark;
  return out;
}

void append_repr(Runtime& runtime, const Value& value, std::string& out);

void append_joined(Runtime& runtime, const std::vector<Value>& items, std::string& out) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i) out += ", ";
    append_repr(runtime, items[i], out);
  }
}

void append_repr(Runtime& runtime, const Value& value, std::string& out) {
  runtime.charge(1);
  if (value.is_text()) {
    runtime.charge_bytes(value.as_text().size());
    out += quote(value.as_text().view());
  } else if (value.is_sequence()) {
    const ListObject& list = *value.as_list();
    out += list.is_tuple ? '(' : '[';
    append_joined(runtime, list.items, out);
    if (list.is_tuple && list.items.size() == 1) out += ',';
    out += list.is_tuple ? ')' : ']';
  } else if (value.is_dict()) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.as_dict()->items()) {
      if (!first) out += ", ";
      first = false;
      append_repr(runtime, key, out);
      out += ": ";
      append_repr(runtime, item, out);
    }
    out += '}';
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "True" : "False";
  } else if (value.is_int()) {
    out += std::to_string(value.as_int());
  } else if (value.is_big()) {
    out += std::to_string(value.as_big());
  } else if (value.is_float()) {
    out += format_float(value.as_float());
  } else {
    out += "<" + std::string(value.type_name()) + ">";
  }
  if (out.size() > runtime.max_text()) runtime.check_text(out.size());
}

}  // namespace

std::string Runtime::repr(const Value& value) {
  std::string out;
  append_repr(*this, value, out);
  check_text(out.size());
  return out;
}

MarkedText Runtime::to_text(const Value& value) {
  if (value.is_text()) return value.as_text();
  if (value.is_undefined()) return {};
  return MarkedText(repr(value), is_all_trusted(value));
}

ListPtr Runtime::iterate(const Value& value) {
  if (value.is_sequence()) return value.as_list();
  std::vector<Value> items;
  if (value.is_dict()) {
    charge(value.as_dict()->items().size());
    for (const auto& item : value.as_dict()->items()) items.push_back(item.first);
  } else if (value.is_text()) {
    const MarkedText& text = value.as_text();
    const std::string_view view = text.view();
    charge(4 * view.size());
    for (std::size_t at = 0; at < view.size();) {
      const std::size_t start = at;
      next_char(view, at);
      items.push_back(Value::text(text.substr(start, at - start)));
    }
  } else if (!value.is_undefined()) {
    fail("'" + std::string(value.type_name()) + "' is not iterable");
  }
  return Value::list(std::move(items)).as_list();
}

std::size_t Runtime::length(const Value& value) {
  if (value.is_text()) {
    charge_bytes(value.as_text().size());
    return count_chars(value.as_text().view());
  }
  if (value.is_sequence()) return value.as_list()->items.size();
  if (value.is_dict()) return value.as_dict()->items().size();
  if (value.is_undefined()) return 0;
  if (value.is_loop()) return value.as_loop()->items->items.size();
  fail("'" + std::string(value.type_name()) + "' has no length");
}

namespace {

Value loop_cycle(Runtime& runtime, const Value& self, const Args& args) {
  if (args.positional.empty()) runtime.fail_argument("loop.cycle", "no items");
  return args.positional[self.as_loop()->index0 % args.positional.size()];
}

void charge_all(Runtime& runtime, const std::vector<Value>& values) {
  for (const Value& value : values) runtime.charge(value.weight());
}

Value loop_changed(Runtime& runtime, const Value& self, const Args& args) {
  const std::shared_ptr<LoopObject>& loop = self.as_loop();
  if (!loop->has_changed) {
    loop->has_changed = true;
    runtime.adopt(loop);
  } else if (charge_all(runtime, args.positional);
             std::equal(args.positional.begin(), args.positional.end(), loop->last_changed.begin(),
                        loop->last_changed.end(), values_equal)) {
    return Value::boolean(false);
  }
  loop->last_changed = args.positional;
  return Value::boolean(true);
}

Value loop_attribute(const Value& value, const std::string& name) {
  const LoopObject& loop = *value.as_loop();
  const auto& items = loop.items->items;
  const auto number = [](std::size_t n) { return Value::integer(static_cast<std::int64_t>(n)); };
  if (name == "index") return number(loop.index0 + 1);
  if (name == "index0") return number(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(loop.index0 + 1 >= items.size());
  if (name == "length") return number(items.size());
  if (name == "revindex") return number(items.size() - std::min(loop.index0, items.size()));
  if (name == "revindex0") return number(items.size() - std::min(loop.index0 + 1, items.size()));
  if (name == "depth") return number(loop.level + 1);
  if (name == "depth0") return number(loop.level);
  if (name == "previtem" && loop.index0 > 0) return items[loop.index0 - 1];
  if (name == "nextitem" && loop.index0 + 1 < items.size()) return items[loop.index0 + 1];
  Callable method;
  method.self = value;
  if (name == "cycle") {
    method.function = &loop_cycle;
    return Value::callable(std::move(method));
  }
  if (name == "changed") {
    method.function = &loop_changed;
    return Value::callable(std::move(method));
  }
  return Value::undefined(&name);
}

Value bound_method(Value::NativeFunction function, const Value& self) {
  Callable method;
  method.function = function;
  method.self = self;
  return Value::callable(std::move(method));
}

}  // namespace

Value Runtime::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is_namespace()) {
    const Value* field = object.as_namespace().find(name);
    return field ? *field : Value::undefined(&name);
  }
  if (object.is_loop()) return loop_attribute(object, name);
  if (const auto method = find_method(object, name)) return checked(bound_method(method, object));
  if (object.is_dict()) {
    if (const Value* found = object.as_dict()->find(name)) return *found;
  }
  return Value::undefined(&name);
}

Value Runtime::item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is_dict()) {
    charge(key.weight());
    if (const Value* found = object.as_dict()->find(key)) return *found;
  }
  if (key.is_text()) {
    if (object.is_namespace()) {
      const Value* field = object.as_namespace().find(key.as_text().view());
      return field ? *field : Value();
    }
    if (const auto method = find_method(object, key.as_text().view()))
      return checked(bound_method(method, object));
    return {};
  }
  std::int64_t index = 0;
  if ((!object.is_sequence() && !object.is_text()) || !key.to_int(index)) return {};
  const auto count = static_cast<std::int64_t>(length(object));
  if (index < 0) index += count;
  if (index < 0 || index >= count) return {};
  if (object.is_sequence()) return object.as_list()->items[static_cast<std::size_t>(index)];
  const MarkedText& text = object.as_text();
  const std::size_t start = char_offset(text.view(), static_cast<std::size_t>(index));
  std::size_t end = start;
  next_char(text.view(), end);
  return Value::text(text.substr(start, end - start));
}

Value Runtime::attribute_path(const Value& object, const Value& path, const Value* fallback) {
  if (!path.is_text()) {
    Value found = item(object, path);
    return found.is_undefined() && fallback ? *fallback : found;
  }
  Value value = object;
  const MarkedText& text = path.as_text();
  for (std::size_t at = 0; at <= text.size();) {
    charge(1);
    const std::string_view rest = text.view().substr(at);
    const std::size_t size = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, size);
    std::int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index =
        !part.empty() && parsed.ec == std::errc() && parsed.ptr == part.data() + part.size();
    value = item(value, is_index ? Value::integer(index) : Value::text(text.substr(at, size)));
    if (value.is_undefined() && fallback) value = *fallback;
    at += size + 1;
  }
  return value;
}

}  // namespace flotilla::chat
