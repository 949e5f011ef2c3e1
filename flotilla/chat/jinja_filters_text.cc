#include <algorithm>

#include "flotilla/chat/jinja_arguments.h"
#include "flotilla/chat/jinja_filters.h"
#include "flotilla/chat/jinja_text_functions.h"
#include "flotilla/chat/unicode_text.h"

namespace flotilla::chat {

namespace {

Value filter_trim(Runtime& rt, const Value& self, const Args& args) {
  const Value* chars = args.get(0, "chars");
  if (!chars || chars->is_none())
    return Value::text(strip_text(rt, rt.to_text(self), Side::kBoth, nullptr));
  const MarkedText set = rt.to_text(*chars);
  const std::string_view view = set.view();
  return Value::text(strip_text(rt, rt.to_text(self), Side::kBoth, &view));
}

template <Casing casing>
Value filter_case(Runtime& rt, const Value& self, const Args&) {
  return Value::text(change_case(rt, rt.to_text(self), casing));
}

Value filter_replace(Runtime& rt, const Value& self, const Args& args) {
  const MarkedText from = rt.to_text(required_argument(rt, args, 0, "old"));
  const MarkedText to = rt.to_text(required_argument(rt, args, 1, "new"));
  return Value::text(
      replace_text(rt, rt.to_text(self), from, to, int_argument(rt, args, 2, "count", -1)));
}

Value filter_join(Runtime& rt, const Value& self, const Args& args) {
  const ListPtr items = rt.iterate(self);
  const MarkedText separator = text_argument(rt, args, 0, "d");
  const Value* attribute = args.get(1, "attribute");
  if (!attribute || attribute->is_none())
    return Value::text(join_texts(rt, items->items, separator));
  std::vector<Value> parts;
  for (const Value& item : items->items) parts.push_back(rt.attribute_path(item, *attribute));
  return Value::text(join_texts(rt, parts, separator));
}

Value filter_indent(Runtime& rt, const Value& self, const Args& args) {
  MarkedText indent;
  const Value* width = args.get(0, "width");
  if (width && width->is_text()) {
    indent = width->as_text();
  } else {
    const std::int64_t blanks = int_argument(rt, args, 0, "width", 4);
    if (blanks > 1000) rt.fail_argument("indent", "more than 1000 blanks");
    indent = MarkedText(
        std::string(static_cast<std::size_t>(std::max<std::int64_t>(blanks, 0)), ' '), true);
  }
  const bool first = bool_argument(args, 1, "first", false);
  const bool blank = bool_argument(args, 2, "blank", false);
  TextBuilder out;
  // Jinja appends a line end first, so that one at the end of the text is kept.
  const MarkedText text = rt.to_text(self);
  std::vector<MarkedText> lines = split_lines(rt, rt.concat(text, MarkedText("\n", true)), false);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i) out.append("\n", true);
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(indent);
    out.append(lines[i]);
    rt.charge_bytes(indent.size() + lines[i].size());
    if (out.size() > rt.max_text()) rt.check_text(out.size());
  }
  return Value::text(out.take());
}

Value filter_escape(Runtime& rt, const Value& self, const Args&) {
  const MarkedText text = rt.to_text(self);
  rt.check_text(text.size());
  TextBuilder out;
  text.for_each_run([&out](std::string_view run, bool trusted) {
    std::string escaped;
    for (const char c : run) {
      if (c == '&') {
        escaped += "&amp;";
      } else if (c == '<') {
        escaped += "&lt;";
      } else if (c == '>') {
        escaped += "&gt;";
      } else if (c == '"') {
        escaped += "&#34;";
      } else if (c == '\'') {
        escaped += "&#39;";
      } else {
        escaped += c;
      }
    }
    out.append(escaped, trusted);
  });
  rt.check_text(out.size());
  return Value::text(out.take());
}

Value filter_string(Runtime& rt, const Value& self, const Args&) {
  return Value::text(rt.to_text(self));
}

Value filter_center(Runtime& rt, const Value& self, const Args& args) {
  return Value::text(
      pad_text(rt, rt.to_text(self), int_argument(rt, args, 0, "width", 80), " ", Side::kBoth));
}

Value filter_truncate(Runtime& rt, const Value& self, const Args& args) {
  const MarkedText text = rt.to_text(self);
  const std::int64_t length = int_argument(rt, args, 0, "length", 255);
  const bool kills_words = bool_argument(args, 1, "killwords", false);
  const MarkedText end = text_argument(rt, args, 2, "end", MarkedText("...", true));
  const std::int64_t leeway = int_argument(rt, args, 3, "leeway", 5);
  const auto count = static_cast<std::int64_t>(rt.length(Value::text(text)));
  const auto end_count = static_cast<std::int64_t>(count_chars(end.view()));
  if (length < end_count || leeway < 0) rt.fail_argument("truncate", "length is too small");
  if (count <= length || count - length <= leeway) return Value::text(text);
  MarkedText kept =
      text.substr(0, char_offset(text.view(), static_cast<std::size_t>(length - end_count)));
  if (!kills_words) {
    const std::size_t blank = kept.view().rfind(' ');
    if (blank != std::string_view::npos) kept = kept.substr(0, blank);
  }
  TextBuilder out;
  out.append(kept);
  out.append(end);
  rt.check_text(out.size());
  return Value::text(out.take());
}

Value filter_wordcount(Runtime& rt, const Value& self, const Args&) {
  return Value::integer(
      static_cast<std::int64_t>(rt.length(split_text(rt, rt.to_text(self), nullptr, -1, false))));
}

Value filter_format(Runtime& rt, const Value& self, const Args& args) {
  return Value::text(format_percent(rt, rt.to_text(self), args));
}

Value filter_urlencode(Runtime& rt, const Value& self, const Args&) {
  const MarkedText text = rt.to_text(self);
  std::string out;
  for (const char c : text.view()) {
    const bool is_safe = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                         (c >= 'A' && c <= 'Z') ||
                         std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (is_safe) {
      out += c;
    } else {
      static constexpr char kDigits[] = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  rt.check_text(out.size());
  return Value::text(std::move(out), text.all_trusted());
}

constexpr FilterEntry kFilters[] = {
    {"trim", &filter_trim},
    {"upper", &filter_case<Casing::kUpper>},
    {"lower", &filter_case<Casing::kLower>},
    {"title", &filter_case<Casing::kTitleWords>},
    {"capitalize", &filter_case<Casing::kCapitalize>},
    {"replace", &filter_replace},
    {"join", &filter_join},
    {"indent", &filter_indent},
    {"escape", &filter_escape},
    {"e", &filter_escape},
    {"forceescape", &filter_escape},
    {"safe", &filter_string},
    {"string", &filter_string},
    {"center", &filter_center},
    {"truncate", &filter_truncate},
    {"wordcount", &filter_wordcount},
    {"format", &filter_format},
    {"urlencode", &filter_urlencode},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace flotilla::chat
