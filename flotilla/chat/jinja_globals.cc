#include <algorithm>
#include <ctime>
#include <string>

#include "flotilla/chat/jinja_arguments.h"
#include "flotilla/chat/jinja_runtime.h"

namespace flotilla::chat {

namespace {

constexpr std::int64_t kMaxRange = 100'000;  // as the sandbox of Jinja

Value global_range(Runtime& rt, const Value&, const Args& args) {
  std::int64_t start = int_argument(rt, args, 0, "start", 0);
  std::int64_t stop = start;
  if (args.positional.size() < 2) {
    start = 0;
  } else {
    stop = int_argument(rt, args, 1, "stop", 0);
  }
  const std::int64_t step = int_argument(rt, args, 2, "step", 1);
  if (args.positional.empty() || step == 0) rt.fail_argument("range", "bad arguments");
  // Differences of 64-bit numbers may not fit; doubles are exact enough to refuse what is too long.
  const double length =
      (static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step);
  if (length > static_cast<double>(kMaxRange)) {
    rt.fail("range: more than " + std::to_string(kMaxRange) + " numbers");
  }
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    rt.charge(1);
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &start)) break;
  }
  return Value::list(std::move(items));
}

Value global_dict(Runtime& rt, const Value&, const Args& args) {
  std::vector<std::pair<Value, Value>> items;
  if (!args.positional.empty()) {
    if (!args.positional[0].is_dict()) rt.fail_argument("dict", "the argument is no mapping");
    items = args.positional[0].as_dict()->items();
    rt.charge(items.size());
  }
  for (const auto& [name, value] : args.named)
    items.emplace_back(Value::text(std::string(name), false), value);
  return Value::dict(std::move(items));
}

Value global_namespace(Runtime& rt, const Value&, const Args& args) {
  auto object = std::make_shared<NamespaceObject>();
  if (!args.positional.empty()) {
    if (!args.positional[0].is_dict()) rt.fail_argument("namespace", "the argument is no mapping");
    for (const auto& [key, value] : args.positional[0].as_dict()->items()) {
      rt.charge(1 + object->fields.size());
      object->set(rt.to_text(key).view(), value);
    }
  }
  for (const auto& [name, value] : args.named) object->set(name, value);
  rt.adopt(object);
  return Value::name_space(std::move(object));
}

Value global_raise(Runtime& rt, const Value&, const Args& args) {
  TemplateError error;
  error.message = std::string(text_argument(rt, args, 0, "message").view());
  error.is_raised = true;
  throw error;
}

Value global_strftime(Runtime& rt, const Value&, const Args& args) {
  const MarkedText format = text_argument(rt, args, 0, "format");
  const std::time_t now = rt.render_time();
  std::tm utc{};
  if (gmtime_r(&now, &utc) == nullptr) rt.fail_argument("strftime_now", "the time is out of range");
  if (format.size() > 256) rt.fail_argument("strftime_now", "the format is too long");
  char buffer[1024];
  // A leading character keeps "nothing printed" apart from "did not fit".
  const std::string pattern = "." + std::string(format.view());
  const std::size_t size = std::strftime(buffer, sizeof buffer, pattern.c_str(), &utc);
  if (size == 0) rt.fail_argument("strftime_now", "the result is too long");
  return Value::text(std::string(buffer + 1, size - 1), format.all_trusted());
}

struct Entry {
  std::string_view name;
  Value::NativeFunction function;
};
constexpr Entry kGlobals[] = {
    {"range", &global_range},           {"dict", &global_dict},
    {"namespace", &global_namespace},   {"raise_exception", &global_raise},
    {"strftime_now", &global_strftime},
};

}  // namespace

Value::NativeFunction find_global(std::string_view name) {
  const auto* it = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                [name](const Entry& e) { return e.name == name; });
  return it == std::end(kGlobals) ? nullptr : it->function;
}

}  // namespace flotilla::chat
