#include <algorithm>
#include <string_view>

#include "flotilla/chat/jinja_arguments.h"
#include "flotilla/chat/jinja_runtime.h"
#include "flotilla/chat/jinja_text_functions.h"
#include "flotilla/chat/unicode_text.h"

namespace flotilla::chat {

namespace {

// ---- str ----

template <Side side>
Value text_strip(Runtime& rt, const Value& self, const Args& args) {
  const Value* chars = args.get(0, "chars");
  if (!chars || chars->is_none()) return Value::text(strip_text(rt, self.as_text(), side, nullptr));
  const MarkedText set = rt.to_text(*chars);
  const std::string_view view = set.view();
  return Value::text(strip_text(rt, self.as_text(), side, &view));
}

template <bool from_right>
Value text_split(Runtime& rt, const Value& self, const Args& args) {
  const Value* separator = args.get(0, "sep");
  const std::int64_t count = int_argument(rt, args, 1, "maxsplit", -1);
  if (!separator || separator->is_none())
    return split_text(rt, self.as_text(), nullptr, count, from_right);
  const MarkedText text = rt.to_text(*separator);
  const std::string_view view = text.view();
  return split_text(rt, self.as_text(), &view, count, from_right);
}

template <bool at_end>
Value text_has_affix(Runtime& rt, const Value& self, const Args& args) {
  const auto matches = [&](const Value& affix) {
    if (!affix.is_text())
      rt.fail(std::string(at_end ? "endswith" : "startswith") + ": the argument is no string");
    const std::string_view text = self.as_text().view();
    return at_end ? text.ends_with(affix.as_text().view())
                  : text.starts_with(affix.as_text().view());
  };
  const Value& affix = required_argument(rt, args, 0, "prefix");
  if (!affix.is_sequence()) return Value::boolean(matches(affix));
  const auto& items = affix.as_list()->items;
  return Value::boolean(std::any_of(items.begin(), items.end(), matches));
}

template <Casing casing>
Value text_case(Runtime& rt, const Value& self, const Args&) {
  return Value::text(change_case(rt, self.as_text(), casing));
}

Value text_replace(Runtime& rt, const Value& self, const Args& args) {
  const MarkedText from = rt.to_text(required_argument(rt, args, 0, "old"));
  const MarkedText to = rt.to_text(required_argument(rt, args, 1, "new"));
  return Value::text(
      replace_text(rt, self.as_text(), from, to, int_argument(rt, args, 2, "count", -1)));
}

Value text_join(Runtime& rt, const Value& self, const Args& args) {
  const ListPtr items = rt.iterate(required_argument(rt, args, 0, "iterable"));
  for (const Value& item : items->items) {
    if (!item.is_text()) rt.fail("join: an element is no string");
  }
  return Value::text(join_texts(rt, items->items, self.as_text()));
}

enum class Search { kFind, kRightFind, kIndex };
template <Search search>
Value text_find(Runtime& rt, const Value& self, const Args& args) {
  const MarkedText needle = rt.to_text(required_argument(rt, args, 0, "sub"));
  const std::string_view view = self.as_text().view();
  rt.charge_bytes(view.size());
  const std::size_t found =
      search == Search::kRightFind ? view.rfind(needle.view()) : view.find(needle.view());
  if (found != std::string_view::npos) {
    return Value::integer(static_cast<std::int64_t>(count_chars(view.substr(0, found))));
  }
  if (search == Search::kIndex) rt.fail("index: substring not found");
  return Value::integer(-1);
}

Value text_count(Runtime& rt, const Value& self, const Args& args) {
  const MarkedText needle = rt.to_text(required_argument(rt, args, 0, "sub"));
  if (needle.empty()) return Value::integer(static_cast<std::int64_t>(rt.length(self)) + 1);
  const std::string_view view = self.as_text().view();
  rt.charge_bytes(view.size());
  std::int64_t count = 0;
  for (std::size_t at = view.find(needle.view()); at != std::string_view::npos; ++count) {
    at = view.find(needle.view(), at + needle.size());
  }
  return Value::integer(count);
}

Value text_format(Runtime& rt, const Value& self, const Args& args) {
  return Value::text(format_braces(rt, self.as_text(), args));
}

template <bool (*accepts)(char32_t)>
Value text_all(Runtime& rt, const Value& self, const Args&) {
  const std::string_view view = self.as_text().view();
  rt.charge_bytes(view.size());
  bool all = !view.empty();
  for (std::size_t at = 0; all && at < view.size();) all = accepts(next_char(view, at));
  return Value::boolean(all);
}

template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value text_casing(Runtime& rt, const Value& self, const Args&) {
  const std::string_view view = self.as_text().view();
  rt.charge_bytes(view.size());
  bool any = false;
  for (std::size_t at = 0; at < view.size();) {
    const char32_t c = next_char(view, at);
    if (unwanted(c)) return Value::boolean(false);
    any = any || wanted(c);
  }
  return Value::boolean(any);
}

Value text_splitlines(Runtime& rt, const Value& self, const Args& args) {
  std::vector<Value> lines;
  for (MarkedText& line :
       split_lines(rt, self.as_text(), bool_argument(args, 0, "keepends", false))) {
    lines.push_back(Value::text(std::move(line)));
  }
  return Value::list(std::move(lines));
}

template <Side text_side>
Value text_pad(Runtime& rt, const Value& self, const Args& args) {
  const MarkedText fill = text_argument(rt, args, 1, "fillchar", MarkedText(" ", true));
  if (count_chars(fill.view()) != 1) rt.fail("the fill is not one character");
  return Value::text(
      pad_text(rt, self.as_text(), int_argument(rt, args, 0, "width", 0), fill.view(), text_side));
}

Value text_zfill(Runtime& rt, const Value& self, const Args& args) {
  const std::string_view view = self.as_text().view();
  const bool has_sign = !view.empty() && (view[0] == '-' || view[0] == '+');
  const std::int64_t width = int_argument(rt, args, 0, "width", 0) - (has_sign ? 1 : 0);
  const MarkedText digits =
      pad_text(rt, self.as_text().substr(has_sign ? 1 : 0, view.size()), width, "0", Side::kRight);
  return Value::text(rt.concat(self.as_text().substr(0, has_sign ? 1 : 0), digits));
}

template <bool at_end>
Value text_remove_affix(Runtime& rt, const Value& self, const Args& args) {
  const MarkedText affix = rt.to_text(required_argument(rt, args, 0, "prefix"));
  const MarkedText& text = self.as_text();
  const bool has_it =
      at_end ? text.view().ends_with(affix.view()) : text.view().starts_with(affix.view());
  if (!has_it) return self;
  return Value::text(text.substr(at_end ? 0 : affix.size(), text.size() - affix.size()));
}

template <bool from_right>
Value text_partition(Runtime& rt, const Value& self, const Args& args) {
  const MarkedText separator = rt.to_text(required_argument(rt, args, 0, "sep"));
  if (separator.empty()) rt.fail("partition: the separator is empty");
  const MarkedText& text = self.as_text();
  rt.charge_bytes(text.size());
  const std::size_t found =
      from_right ? text.view().rfind(separator.view()) : text.view().find(separator.view());
  const Value nothing = Value::text(MarkedText());
  if (found == std::string_view::npos) {
    return from_right ? Value::tuple({nothing, nothing, self})
                      : Value::tuple({self, nothing, nothing});
  }
  return Value::tuple({Value::text(text.substr(0, found)),
                       Value::text(text.substr(found, separator.size())),
                       Value::text(text.substr(found + separator.size(), text.size()))});
}

// ---- dict and list ----

template <int part>  // 0 keys, 1 values, 2 pairs
Value dict_parts(Runtime& rt, const Value& self, const Args&) {
  std::vector<Value> parts;
  for (const auto& [key, value] : self.as_dict()->items()) {
    rt.charge(2);
    parts.push_back(part == 0 ? key : part == 1 ? value : Value::tuple({key, value}));
  }
  return Value::list(std::move(parts));
}

Value dict_get(Runtime& rt, const Value& self, const Args& args) {
  const Value& key = required_argument(rt, args, 0, "key");
  rt.charge(key.weight());
  if (const Value* found = self.as_dict()->find(key)) return *found;
  const Value* fallback = args.get(1, "default");
  return fallback ? *fallback : Value::none();
}

Value copy_value(Runtime&, const Value& self, const Args&) { return self; }

Value list_index(Runtime& rt, const Value& self, const Args& args) {
  const Value& wanted = required_argument(rt, args, 0, "value");
  const auto& items = self.as_list()->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    charge_comparison(rt, items[i], wanted);
    if (values_equal(items[i], wanted)) return Value::integer(static_cast<std::int64_t>(i));
  }
  rt.fail("index: the value is not in the list");
}

Value list_count(Runtime& rt, const Value& self, const Args& args) {
  const Value& wanted = required_argument(rt, args, 0, "value");
  std::int64_t count = 0;
  for (const Value& item : self.as_list()->items) {
    charge_comparison(rt, item, wanted);
    count += values_equal(item, wanted) ? 1 : 0;
  }
  return Value::integer(count);
}

Value refuse_change(Runtime& rt, const Value&, const Args&) {
  rt.fail("lists cannot be changed; use namespace() and +");
}

struct Entry {
  std::string_view name;
  Value::NativeFunction function;
};
constexpr Entry kTextMethods[] = {
    {"strip", &text_strip<Side::kBoth>},
    {"lstrip", &text_strip<Side::kLeft>},
    {"rstrip", &text_strip<Side::kRight>},
    {"split", &text_split<false>},
    {"rsplit", &text_split<true>},
    {"startswith", &text_has_affix<false>},
    {"endswith", &text_has_affix<true>},
    {"replace", &text_replace},
    {"upper", &text_case<Casing::kUpper>},
    {"lower", &text_case<Casing::kLower>},
    {"casefold", &text_case<Casing::kLower>},
    {"title", &text_case<Casing::kPythonTitle>},
    {"capitalize", &text_case<Casing::kCapitalize>},
    {"swapcase", &text_case<Casing::kSwap>},
    {"join", &text_join},
    {"find", &text_find<Search::kFind>},
    {"rfind", &text_find<Search::kRightFind>},
    {"index", &text_find<Search::kIndex>},
    {"count", &text_count},
    {"format", &text_format},
    {"splitlines", &text_splitlines},
    {"isdigit", &text_all<is_decimal>},
    {"isnumeric", &text_all<is_decimal>},
    {"isdecimal", &text_all<is_decimal>},
    {"isalpha", &text_all<is_letter>},
    {"isalnum", &text_all<is_alphanumeric>},
    {"isspace", &text_all<is_space_char>},
    {"isupper", &text_casing<is_upper, is_lower>},
    {"islower", &text_casing<is_lower, is_upper>},
    {"ljust", &text_pad<Side::kLeft>},
    {"rjust", &text_pad<Side::kRight>},
    {"center", &text_pad<Side::kBoth>},
    {"zfill", &text_zfill},
    {"removeprefix", &text_remove_affix<false>},
    {"removesuffix", &text_remove_affix<true>},
    {"partition", &text_partition<false>},
    {"rpartition", &text_partition<true>},
};
constexpr Entry kDictMethods[] = {
    {"items", &dict_parts<2>}, {"keys", &dict_parts<0>}, {"values", &dict_parts<1>},
    {"get", &dict_get},        {"copy", &copy_value},
};
constexpr Entry kListMethods[] = {
    {"index", &list_index},     {"count", &list_count},     {"copy", &copy_value},
    {"append", &refuse_change}, {"extend", &refuse_change}, {"insert", &refuse_change},
    {"pop", &refuse_change},    {"remove", &refuse_change},
};

template <std::size_t n>
Value::NativeFunction lookup(const Entry (&table)[n], std::string_view name) {
  const auto* it = std::find_if(std::begin(table), std::end(table),
                                [name](const Entry& e) { return e.name == name; });
  return it == std::end(table) ? nullptr : it->function;
}

}  // namespace

Value::NativeFunction find_method(const Value& object, std::string_view name) {
  if (object.is_text()) return lookup(kTextMethods, name);
  if (object.is_dict()) return lookup(kDictMethods, name);
  if (object.is_sequence()) return lookup(kListMethods, name);
  return nullptr;
}

}  // namespace flotilla::chat
