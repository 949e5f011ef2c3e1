#include <algorithm>
#include <charconv>
#include <cstdio>

#include "flotilla/chat/jinja_text_functions.h"

namespace flotilla::chat {

MarkedText format_braces(Runtime& runtime, const MarkedText& pattern, const Args& args) {
  const std::string_view view = pattern.view();
  runtime.charge_bytes(view.size());
  TextBuilder out;
  std::size_t next_position = 0;
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t brace = std::min(view.find_first_of("{}", at), view.size());
    out.append(pattern.substr(at, brace - at));
    at = brace;
    if (at >= view.size()) break;
    if (at + 1 < view.size() && view[at + 1] == view[at]) {
      out.append(pattern.substr(at, 1));
      at += 2;
      continue;
    }
    const std::size_t close = view.find('}', at);
    if (view[at] == '}' || close == std::string_view::npos)
      runtime.fail("format: a brace has no partner");
    const std::string_view field = view.substr(at + 1, close - at - 1);
    if (field.find_first_of(":!.[{") != std::string_view::npos) {
      runtime.fail("format: only plain fields are supported");
    }
    const Value* value = nullptr;
    std::size_t position = 0;
    const auto parsed = std::from_chars(field.data(), field.data() + field.size(), position);
    if (field.empty()) {
      value = next_position < args.positional.size() ? &args.positional[next_position++] : nullptr;
    } else if (parsed.ec == std::errc() && parsed.ptr == field.data() + field.size()) {
      value = position < args.positional.size() ? &args.positional[position] : nullptr;
    } else {
      value = args.get(args.positional.size(), field);
    }
    if (!value) runtime.fail("format: a field has no argument");
    out.append(runtime.to_text(*value));
    runtime.check_text(out.size());
    at = close + 1;
  }
  return out.take();
}

namespace {

struct Specification {
  std::string flags;
  int width = 0;
  int precision = -1;
  char kind = 0;
};

// Reads what follows a '%'; returns the offset behind it, or npos.
std::size_t read_specification(std::string_view view, std::size_t at, Specification& out) {
  while (at < view.size() && std::string_view("-+ 0#").find(view[at]) != std::string_view::npos)
    out.flags += view[at++];
  const auto number = [&](int fallback) {
    int value = fallback;
    while (at < view.size() && view[at] >= '0' && view[at] <= '9') {
      value = std::min(std::max(value, 0) * 10 + (view[at++] - '0'), 500);
    }
    return value;
  };
  out.width = number(0);
  if (at < view.size() && view[at] == '.') {
    ++at;
    out.precision = std::max(number(0), 0);
  }
  if (at >= view.size() || out.flags.size() > 8) return std::string_view::npos;
  out.kind = view[at];
  return at + 1;
}

MarkedText format_one(Runtime& runtime, const Specification& spec, const Value& value) {
  char buffer[1200];
  std::string format = "%" + spec.flags + "*.*";
  if (spec.kind == 's' || spec.kind == 'r') {
    MarkedText text = spec.kind == 's' ? runtime.to_text(value)
                                       : MarkedText(runtime.repr(value), is_all_trusted(value));
    const bool is_left = spec.flags.find('-') != std::string::npos;
    return pad_text(runtime, text, spec.width, " ", is_left ? Side::kLeft : Side::kRight);
  }
  if (!value.is_number()) runtime.fail("format: a number is needed");
  int size = 0;
  if (spec.kind == 'd' || spec.kind == 'i' || spec.kind == 'x' || spec.kind == 'X') {
    std::int64_t number = 0;
    if (!value.to_int(number))
      number = static_cast<std::int64_t>(std::clamp(value.number(), -9.2e18, 9.2e18));
    format += spec.kind == 'i' ? "lld" : std::string("ll") + spec.kind;
    size = std::snprintf(buffer, sizeof buffer, format.c_str(), spec.width, spec.precision,
                         static_cast<long long>(number));
  } else if (std::string_view("feEgG").find(spec.kind) != std::string_view::npos) {
    format += spec.kind;
    size = std::snprintf(buffer, sizeof buffer, format.c_str(), spec.width, spec.precision,
                         value.number());
  } else {
    runtime.fail("format: unsupported conversion");
  }
  return MarkedText(
      std::string(buffer, std::min<std::size_t>(static_cast<std::size_t>(size), sizeof buffer - 1)),
      false);
}

}  // namespace

MarkedText format_percent(Runtime& runtime, const MarkedText& pattern, const Args& args) {
  const std::string_view view = pattern.view();
  runtime.charge_bytes(view.size());
  TextBuilder out;
  std::size_t next_position = 0;
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t sign = std::min(view.find('%', at), view.size());
    out.append(pattern.substr(at, sign - at));
    if (sign >= view.size()) break;
    Specification spec;
    at = sign + 1;
    const Value* value = nullptr;
    if (at < view.size() && view[at] == '(') {
      const std::size_t close = view.find(')', at);
      if (close == std::string_view::npos) runtime.fail("format: a parenthesis has no partner");
      value = args.get(args.positional.size(), view.substr(at + 1, close - at - 1));
      if (!value) runtime.fail("format: a field has no argument");
      at = close + 1;
    }
    at = read_specification(view, at, spec);
    if (at == std::string_view::npos) runtime.fail("format: incomplete conversion");
    if (spec.kind == '%') {
      out.append(pattern.substr(at - 1, 1));
      continue;
    }
    if (!value) {
      if (next_position >= args.positional.size()) runtime.fail("format: not enough arguments");
      value = &args.positional[next_position++];
    }
    out.append(format_one(runtime, spec, *value));
    runtime.check_text(out.size());
  }
  if (next_position < args.positional.size()) runtime.fail("format: too many arguments");
  return out.take();
}

}  // namespace flotilla::chat
