#include <algorithm>
#include <unordered_map>
#include <utility>

#include "flotilla/chat/jinja_arguments.h"
#include "flotilla/chat/jinja_filters.h"
#include "flotilla/chat/jinja_interpreter.h"
#include "flotilla/chat/jinja_text_functions.h"

namespace flotilla::chat {

namespace {

Value filter_length(Runtime& rt, const Value& self, const Args&) {
  return Value::integer(static_cast<std::int64_t>(rt.length(self)));
}

Value filter_first(Runtime& rt, const Value& self, const Args&) {
  if (self.is_text()) return rt.item(self, Value::integer(0));
  const ListPtr items = rt.iterate(self);
  return items->items.empty() ? Value() : items->items.front();
}

Value filter_last(Runtime& rt, const Value& self, const Args&) {
  if (self.is_text()) return rt.item(self, Value::integer(-1));
  const ListPtr items = rt.iterate(self);
  return items->items.empty() ? Value() : items->items.back();
}

Value filter_list(Runtime& rt, const Value& self, const Args&) {
  const ListPtr items = rt.iterate(self);
  rt.charge(items->items.size());
  return Value::list(items->items);
}

Value filter_reverse(Runtime& rt, const Value& self, const Args&) {
  if (self.is_text())
    return slice_value(rt, self, Value::none(), Value::none(), Value::integer(-1));
  std::vector<Value> items = rt.iterate(self)->items;
  rt.charge(items.size());
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Value filter_items(Runtime& rt, const Value& self, const Args&) {
  std::vector<Value> pairs;
  if (self.is_undefined()) return Value::list({});
  if (!self.is_dict()) rt.fail_argument("items", "the value is no mapping");
  for (const auto& [key, value] : self.as_dict()->items()) {
    rt.charge(2);
    pairs.push_back(Value::tuple({key, value}));
  }
  return Value::list(std::move(pairs));
}

Value folded(Runtime& rt, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_text()) return value;
  return Value::text(change_case(rt, value.as_text(), Casing::kLower));
}

struct Keyed {
  Value key;
  Value value;
};

void sort_keyed(Runtime& rt, std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&rt, reverse](const Keyed& a, const Keyed& b) {
    return compare_values(rt, a.key, b.key) * (reverse ? -1 : 1) < 0;
  });
}

Value filter_dictsort(Runtime& rt, const Value& self, const Args& args) {
  if (self.is_undefined()) rt.fail_undefined(self);
  if (!self.is_dict()) rt.fail_argument("dictsort", "the value is no mapping");
  const bool case_sensitive = bool_argument(args, 0, "case_sensitive", false);
  const MarkedText by = text_argument(rt, args, 1, "by", MarkedText("key", true));
  if (by.view() != "key" && by.view() != "value")
    rt.fail_argument("dictsort", "by is neither 'key' nor 'value'");
  std::vector<Keyed> items;
  for (const auto& [key, value] : self.as_dict()->items()) {
    rt.charge(2);
    items.push_back(
        {folded(rt, by.view() == "key" ? key : value, case_sensitive), Value::tuple({key, value})});
  }
  sort_keyed(rt, items, bool_argument(args, 2, "reverse", false));
  std::vector<Value> sorted;
  for (Keyed& item : items) sorted.push_back(std::move(item.value));
  return Value::list(std::move(sorted));
}

// The keys of `self` by the filter argument "attribute", which may name several, separated by
// commas.
std::vector<Keyed> keyed_items(Runtime& rt, const Value& self, const Value* attribute,
                               bool case_sensitive) {
  std::vector<Keyed> items;
  const ListPtr elements = rt.iterate(self);  // outlives the loop
  for (const Value& item : elements->items) {
    rt.charge(2);
    if (!attribute || attribute->is_none()) {
      items.push_back({folded(rt, item, case_sensitive), item});
    } else if (attribute->is_text() &&
               attribute->as_text().view().find(',') != std::string_view::npos) {
      const std::string_view comma = ",";
      std::vector<Value> keys;
      const Value paths = split_text(rt, attribute->as_text(), &comma, -1, false);
      for (const Value& path : paths.as_list()->items) {
        keys.push_back(folded(rt, rt.attribute_path(item, path), case_sensitive));
      }
      items.push_back({Value::tuple(std::move(keys)), item});
    } else {
      items.push_back({folded(rt, rt.attribute_path(item, *attribute), case_sensitive), item});
    }
  }
  return items;
}

Value filter_sort(Runtime& rt, const Value& self, const Args& args) {
  std::vector<Keyed> items = keyed_items(rt, self, args.get(2, "attribute"),
                                         bool_argument(args, 1, "case_sensitive", false));
  sort_keyed(rt, items, bool_argument(args, 0, "reverse", false));
  std::vector<Value> sorted;
  for (Keyed& item : items) sorted.push_back(std::move(item.value));
  return Value::list(std::move(sorted));
}

Value filter_unique(Runtime& rt, const Value& self, const Args& args) {
  std::vector<Value> kept;
  std::unordered_multimap<std::size_t, Value> seen;
  for (Keyed& item : keyed_items(rt, self, args.get(1, "attribute"),
                                 bool_argument(args, 0, "case_sensitive", false))) {
    rt.charge(item.key.weight());
    const std::size_t hash = hash_value(item.key);
    const auto [begin, end] = seen.equal_range(hash);
    const bool is_seen = std::any_of(begin, end, [&](const auto& other) {
      charge_comparison(rt, other.second, item.key);
      return values_equal(other.second, item.key);
    });
    if (is_seen) continue;
    seen.emplace(hash, item.key);
    kept.push_back(std::move(item.value));
  }
  return Value::list(std::move(kept));
}

Value extreme(Runtime& rt, const Value& self, const Args& args, int sign) {
  std::vector<Keyed> items = keyed_items(rt, self, args.get(1, "attribute"),
                                         bool_argument(args, 0, "case_sensitive", false));
  const Keyed* best = nullptr;
  for (const Keyed& item : items) {
    if (!best || compare_values(rt, item.key, best->key) * sign > 0) best = &item;
  }
  return best ? best->value : Value();
}
Value filter_max(Runtime& rt, const Value& self, const Args& args) {
  return extreme(rt, self, args, 1);
}
Value filter_min(Runtime& rt, const Value& self, const Args& args) {
  return extreme(rt, self, args, -1);
}

Value filter_sum(Runtime& rt, const Value& self, const Args& args) {
  const Value* attribute = args.get(0, "attribute");
  const Value* start = args.get(1, "start");
  Value total = start ? *start : Value::integer(0);
  const ListPtr elements = rt.iterate(self);  // outlives the loop
  for (const Value& item : elements->items) {
    const bool has_path = attribute && !attribute->is_none();
    total = apply_operator(rt, Operator::kAdd, total,
                           has_path ? rt.attribute_path(item, *attribute) : item);
  }
  return total;
}

Value filter_batch(Runtime& rt, const Value& self, const Args& args) {
  const std::int64_t size = int_argument(rt, args, 0, "linecount", 0);
  if (size <= 0 || size > 1'000'000) rt.fail_argument("batch", "bad size");
  const Value* fill = args.get(1, "fill_with");
  std::vector<Value> rows;
  std::vector<Value> row;
  const ListPtr elements = rt.iterate(self);  // outlives the loop
  for (const Value& item : elements->items) {
    rt.charge(2);
    if (row.size() == static_cast<std::size_t>(size))
      rows.push_back(Value::list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (fill && !fill->is_none()) {
      rt.charge(static_cast<std::size_t>(size));
      row.resize(static_cast<std::size_t>(size), *fill);
    }
    rows.push_back(Value::list(std::move(row)));
  }
  return Value::list(std::move(rows));
}

Value filter_slice(Runtime& rt, const Value& self, const Args& args) {
  const std::int64_t slices = int_argument(rt, args, 0, "slices", 0);
  if (slices <= 0 || slices > 100'000) rt.fail_argument("slice", "bad number of slices");
  const Value* fill = args.get(1, "fill_with");
  const ListPtr items = rt.iterate(self);
  const std::size_t count = static_cast<std::size_t>(slices);
  const std::size_t per_slice = items->items.size() / count;
  const std::size_t longer = items->items.size() % count;
  rt.charge(items->items.size() + count);
  std::vector<Value> out;
  auto at = items->items.begin();
  for (std::size_t i = 0; i < count; ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(per_slice + (i < longer ? 1 : 0));
    std::vector<Value> part(at, end);
    if (fill && !fill->is_none() && i >= longer) part.push_back(*fill);
    out.push_back(Value::list(std::move(part)));
    at = end;
  }
  return Value::list(std::move(out));
}

Value filter_groupby(Runtime& rt, const Value& self, const Args& args) {
  const Value& attribute = required_argument(rt, args, 0, "attribute");
  const Value* fallback = args.get(1, "default");
  const bool case_sensitive = bool_argument(args, 2, "case_sensitive", false);
  std::vector<Keyed> items;
  const auto real_key = [&](const Value& item) {
    return rt.attribute_path(item, attribute, fallback);
  };
  const ListPtr elements = rt.iterate(self);  // outlives the loop
  for (const Value& item : elements->items)
    items.push_back({folded(rt, real_key(item), case_sensitive), item});
  sort_keyed(rt, items, false);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < items.size();) {
    std::vector<Value> members;
    std::size_t end = i;
    while (end < items.size() && values_equal(items[end].key, items[i].key))
      members.push_back(items[end++].value);
    // A plain pair: .grouper and .list of Jinja's named tuple are not there.
    Value list = Value::list(std::move(members));
    groups.push_back(Value::tuple({real_key(items[i].value), std::move(list)}));
    rt.charge(end - i + 2);
    i = end;
  }
  return Value::list(std::move(groups));
}

// What map, select and their kin apply to each element, from the arguments behind `skipped` ones.
Args rest_of(const Args& args, std::size_t skipped) {
  Args rest;
  rest.positional.assign(args.positional.begin() +
                             static_cast<std::ptrdiff_t>(std::min(skipped, args.positional.size())),
                         args.positional.end());
  rest.named = args.named;
  return rest;
}

Value filter_map(Runtime& rt, const Value& self, const Args& args) {
  std::vector<Value> out;
  const ListPtr items = rt.iterate(self);
  const Value* attribute = args.positional.empty() ? args.get(0, "attribute") : nullptr;
  if (attribute) {
    const Value* fallback = args.get(args.positional.size(), "default");
    for (const Value& item : items->items) {
      rt.charge(1);
      out.push_back(rt.attribute_path(item, *attribute, fallback));
    }
    return Value::list(std::move(out));
  }
  const MarkedText name = rt.to_text(required_argument(rt, args, 0, "filter"));
  const FilterFunction function = find_filter(name.view());
  if (!function) rt.fail("there is no filter '" + std::string(name.view()) + "'");
  const Args rest = rest_of(args, 1);
  for (const Value& item : items->items) {
    rt.charge(1);
    out.push_back(function(rt, item, rest));
  }
  return Value::list(std::move(out));
}

Value pick(Runtime& rt, const Value& self, const Args& args, bool by_attribute, bool wanted) {
  const std::size_t first = by_attribute ? 1 : 0;
  const Value* attribute = by_attribute ? &required_argument(rt, args, 0, "attribute") : nullptr;
  TestFunction test = nullptr;
  if (args.positional.size() > first) {
    const MarkedText name = rt.to_text(args.positional[first]);
    test = find_test(name.view());
    if (!test) rt.fail("there is no test '" + std::string(name.view()) + "'");
  }
  const Args rest = rest_of(args, first + 1);
  std::vector<Value> kept;
  const ListPtr elements = rt.iterate(self);  // outlives the loop
  for (const Value& item : elements->items) {
    rt.charge(1);
    const Value subject = attribute ? rt.attribute_path(item, *attribute) : item;
    if ((test ? test(rt, subject, rest) : subject.truthy()) == wanted) kept.push_back(item);
  }
  return Value::list(std::move(kept));
}
template <bool by_attribute, bool wanted>
Value filter_pick(Runtime& rt, const Value& self, const Args& args) {
  return pick(rt, self, args, by_attribute, wanted);
}

constexpr FilterEntry kFilters[] = {
    {"length", &filter_length},
    {"count", &filter_length},
    {"first", &filter_first},
    {"last", &filter_last},
    {"list", &filter_list},
    {"reverse", &filter_reverse},
    {"items", &filter_items},
    {"dictsort", &filter_dictsort},
    {"sort", &filter_sort},
    {"unique", &filter_unique},
    {"max", &filter_max},
    {"min", &filter_min},
    {"sum", &filter_sum},
    {"batch", &filter_batch},
    {"slice", &filter_slice},
    {"groupby", &filter_groupby},
    {"map", &filter_map},
    {"select", &filter_pick<false, true>},
    {"reject", &filter_pick<false, false>},
    {"selectattr", &filter_pick<true, true>},
    {"rejectattr", &filter_pick<true, false>},
};

}  // namespace

std::span<const FilterEntry> list_filters() { return kFilters; }

}  // namespace flotilla::chat
