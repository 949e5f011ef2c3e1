#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <numeric>

#include "flotilla/grammar/formats.h"
#include "flotilla/grammar/regex.h"
#include "flotilla/grammar/schema_parts.h"

namespace flotilla::grammar {
namespace bj = boost::json;
namespace {

// Keywords of the standard that restrict values in ways that are not enforced.
constexpr std::array<std::string_view, 18> kUnsupportedKeywords = {"not",
                                                                   "if",
                                                                   "then",
                                                                   "else",
                                                                   "contains",
                                                                   "minContains",
                                                                   "maxContains",
                                                                   "propertyNames",
                                                                   "dependencies",
                                                                   "dependentRequired",
                                                                   "dependentSchemas",
                                                                   "unevaluatedItems",
                                                                   "unevaluatedProperties",
                                                                   "$dynamicRef",
                                                                   "$recursiveRef",
                                                                   "contentSchema",
                                                                   "extends",
                                                                   "disallow"};

std::string_view view(bj::string_view text) { return {text.data(), text.size()}; }

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

// Whether a scalar is within `limits`; arrays and objects always are.
bool within(const bj::value& value, const Limits& limits) {
  if (value.is_string()) {
    const std::string_view text = view(value.get_string());
    const std::size_t length = num_characters(text);
    return length >= limits.min_length && length <= limits.max_length &&
           std::all_of(limits.texts.begin(), limits.texts.end(),
                       [&](const Dfa& dfa) { return dfa.matches(text); });
  }
  if (value.is_number()) {
    const double number = value.to_number<double>();
    const NumberBounds& b = limits.number;
    if (b.minimum && (b.exclusive_minimum ? number <= *b.minimum : number < *b.minimum))
      return false;
    if (b.maximum && (b.exclusive_maximum ? number >= *b.maximum : number > *b.maximum))
      return false;
    return b.multiple_of == 1 || std::fmod(number, static_cast<double>(b.multiple_of)) == 0;
  }
  return true;
}

std::uint8_t type_of(const bj::value& value) {
  if (value.is_null()) return kNull;
  if (value.is_bool()) return kBoolean;
  if (value.is_string()) return kString;
  if (value.is_array()) return kArray;
  if (value.is_object()) return kObject;
  const double number = value.to_number<double>();
  return number == std::floor(number) ? kInteger : kFraction;
}

}  // namespace

Status SchemaReader::check_keywords(const bj::object& schema) {
  const std::string path = path_of(&schema);
  for (const std::string_view key : kUnsupportedKeywords) {
    if (member(schema, key) != nullptr) {
      return unsupported(path + "." + std::string(key),
                         "the keyword '" + std::string(key) + "' is not supported");
    }
  }
  if (const bj::value* unique = member(schema, "uniqueItems");
      unique != nullptr && !(unique->is_bool() && !unique->get_bool())) {
    return unsupported(path + ".uniqueItems", "the keyword 'uniqueItems' is not supported");
  }
  for (const std::string_view key : {"allOf", "anyOf", "oneOf"}) {
    const bj::value* list = member(schema, key);
    if (list == nullptr) continue;
    const std::string where = path + "." + std::string(key);
    if (!list->is_array() || list->get_array().empty()) {
      return invalid(where, "must be an array of at least one schema");
    }
    for (std::size_t i = 0; i < list->get_array().size(); ++i) {
      paths_.emplace(&list->get_array()[i], where + "[" + std::to_string(i) + "]");
    }
  }
  for (const std::string_view key : {"properties", "patternProperties"}) {
    const bj::value* map = member(schema, key);
    if (map != nullptr && !map->is_object()) {
      return invalid(path + "." + std::string(key), "must be an object");
    }
  }
  if (const bj::value* list = member(schema, "required")) {
    const bool fine =
        list->is_array() && std::all_of(list->get_array().begin(), list->get_array().end(),
                                        [](const bj::value& name) { return name.is_string(); });
    if (!fine) return invalid(path + ".required", "must be an array of strings");
  }
  return ok_status();
}

Result<std::uint8_t> SchemaReader::types_of(const bj::object& schema) {
  const std::string path = path_of(&schema) + ".type";
  const bj::value* type = member(schema, "type");
  if (type == nullptr) return std::uint8_t{kAllTypes};
  std::uint8_t out = 0;
  const auto add = [&](const bj::value& name) {
    static constexpr std::pair<std::string_view, std::uint8_t> kNames[] = {
        {"null", kNull},
        {"boolean", kBoolean},
        {"integer", kInteger},
        {"string", kString},
        {"array", kArray},
        {"object", kObject},
        {"number", kInteger | kFraction}};
    if (!name.is_string()) return false;
    for (const auto& [known, bits] : kNames) {
      if (view(name.get_string()) == known) {
        out |= bits;
        return true;
      }
    }
    return false;
  };
  const bool fine = type->is_array()
                        ? std::all_of(type->get_array().begin(), type->get_array().end(), add)
                        : add(*type);
  if (!fine || out == 0) {
    return invalid(
        path, "must be null, boolean, integer, number, string, array, object, or a list of them");
  }
  const bj::value* nullable = member(schema, "nullable");
  if (nullable != nullptr && nullable->is_bool() && nullable->get_bool()) out |= kNull;
  return out;
}

Result<std::optional<std::uint64_t>> SchemaReader::count(const bj::object& schema,
                                                         std::string_view key) {
  const bj::value* value = member(schema, key);
  if (value == nullptr) return std::optional<std::uint64_t>();
  const double number = value->is_number() ? value->to_number<double>() : -1;
  if (!(number >= 0) || number != std::floor(number)) {
    return invalid(path_of(&schema) + "." + std::string(key), "must be an integer of at least 0");
  }
  return std::optional<std::uint64_t>(static_cast<std::uint64_t>(std::min(number, 1e15)));
}

Status SchemaReader::read_numbers(const bj::object& schema, Limits& out) {
  const std::string path = path_of(&schema);
  NumberBounds& n = out.number;
  const auto bound = [&](std::string_view key) -> Result<std::optional<double>> {
    const bj::value* value = member(schema, key);
    if (value == nullptr) return std::optional<double>();
    if (!value->is_number()) return invalid(path + "." + std::string(key), "must be a number");
    return std::optional<double>(value->to_number<double>());
  };
  const auto raise = [&n](double value, bool exclusive) {
    if (!n.minimum || value > *n.minimum) {
      n.minimum = value;
      n.exclusive_minimum = exclusive;
    } else if (value == *n.minimum) {
      n.exclusive_minimum = n.exclusive_minimum || exclusive;
    }
  };
  const auto lower = [&n](double value, bool exclusive) {
    if (!n.maximum || value < *n.maximum) {
      n.maximum = value;
      n.exclusive_maximum = exclusive;
    } else if (value == *n.maximum) {
      n.exclusive_maximum = n.exclusive_maximum || exclusive;
    }
  };
  // In draft 4 the exclusive forms are flags beside the bounds.
  const auto flag = [&](std::string_view key) {
    const bj::value* value = member(schema, key);
    return value != nullptr && value->is_bool() ? std::optional<bool>(value->get_bool())
                                                : std::nullopt;
  };
  FLOTILLA_TRY(const auto minimum, bound("minimum"));
  FLOTILLA_TRY(const auto maximum, bound("maximum"));
  if (minimum) raise(*minimum, flag("exclusiveMinimum").value_or(false));
  if (maximum) lower(*maximum, flag("exclusiveMaximum").value_or(false));
  if (!flag("exclusiveMinimum")) {
    FLOTILLA_TRY(const auto value, bound("exclusiveMinimum"));
    if (value) raise(*value, true);
  }
  if (!flag("exclusiveMaximum")) {
    FLOTILLA_TRY(const auto value, bound("exclusiveMaximum"));
    if (value) lower(*value, true);
  }
  FLOTILLA_TRY(const auto multiple, bound("multipleOf"));
  if (multiple) {
    const bool fine = *multiple >= 1 && *multiple == std::floor(*multiple) &&
                      *multiple <= static_cast<double>(kMaxMultipleOf);
    const auto step = fine ? static_cast<std::int64_t>(*multiple) : 1;
    const std::int64_t both = n.multiple_of / std::gcd(n.multiple_of, step) * step;
    if (!fine || both > kMaxMultipleOf) {
      return unsupported(path + ".multipleOf", "'multipleOf' is supported for integers from 1 to " +
                                                   std::to_string(kMaxMultipleOf));
    }
    n.multiple_of = both;
    // Multiples of 1 are integers too.
    if ((out.types & kFraction) != 0) out.types &= static_cast<std::uint8_t>(~kFraction);
  }
  return ok_status();
}

Status SchemaReader::read_sizes(const bj::object& schema, Limits& out) {
  const auto apply = [&](std::string_view min_key, std::string_view max_key, std::uint64_t& min,
                         std::uint64_t& max) -> Status {
    FLOTILLA_TRY(const auto low, count(schema, min_key));
    FLOTILLA_TRY(const auto high, count(schema, max_key));
    if (low) min = std::max(min, *low);
    if (high) max = std::min(max, *high);
    return ok_status();
  };
  FLOTILLA_TRY_STATUS(apply("minLength", "maxLength", out.min_length, out.max_length));
  FLOTILLA_TRY_STATUS(apply("minItems", "maxItems", out.min_items, out.max_items));
  FLOTILLA_TRY_STATUS(
      apply("minProperties", "maxProperties", out.min_properties, out.max_properties));
  const std::string path = path_of(&schema);
  if (const bj::value* pattern = member(schema, "pattern")) {
    const std::string where = path + ".pattern";
    if (!pattern->is_string()) return invalid(where, "must be a string");
    auto dfa = regex_to_dfa(view(pattern->get_string()), RegexMode::kSearch);
    if (!dfa.ok()) {
      const bool large = dfa.error().code == ErrorCode::kTooLarge;
      return Error{large ? ErrorCode::kTooLarge : ErrorCode::kUnsupported,
                   "'" + where + "': " + dfa.error().message, where};
    }
    out.texts.push_back(std::move(dfa).value());
  }
  if (const bj::value* format = member(schema, "format")) {
    const std::string where = path + ".format";
    if (!format->is_string()) return invalid(where, "must be a string");
    const std::string_view name = view(format->get_string());
    if (const std::string_view known = format_pattern(name); !known.empty()) {
      FLOTILLA_TRY(Dfa dfa, regex_to_dfa(known, RegexMode::kWhole));
      out.texts.push_back(std::move(dfa));
    } else if (is_unsupported_format(name)) {
      return unsupported(where, "the format '" + std::string(name) + "' is not supported");
    }
  }
  return ok_status();
}

Status SchemaReader::read_values(const bj::object& schema, Limits& out) {
  const auto keep = [&out](const std::vector<const bj::value*>& allowed) {
    if (!out.values) {
      out.values = allowed;
      return;
    }
    std::erase_if(*out.values, [&](const bj::value* value) {
      return std::none_of(allowed.begin(), allowed.end(),
                          [value](const bj::value* other) { return same_value(*value, *other); });
    });
  };
  if (const bj::value* constant = member(schema, "const")) keep({constant});
  if (const bj::value* list = member(schema, "enum")) {
    if (!list->is_array() || list->get_array().empty()) {
      return invalid(path_of(&schema) + ".enum", "must be an array of at least one value");
    }
    std::vector<const bj::value*> allowed;
    for (const bj::value& value : list->get_array()) allowed.push_back(&value);
    keep(allowed);
  }
  return ok_status();
}

Result<Limits> SchemaReader::limits(const Alternative& alternative) {
  Limits out;
  bool typed = false;
  std::uint8_t meant = 0;
  for (const bj::object* schema : alternative) {
    FLOTILLA_TRY(const std::uint8_t types, types_of(*schema));
    out.types &= types;
    typed = typed || member(*schema, "type") != nullptr;
    const auto has = [schema](std::initializer_list<std::string_view> keys) {
      return std::any_of(keys.begin(), keys.end(), [schema](std::string_view key) {
        return member(*schema, key) != nullptr;
      });
    };
    if (has({"properties", "required", "additionalProperties", "patternProperties", "minProperties",
             "maxProperties"})) {
      meant |= kObject;
    }
    if (has({"items", "prefixItems", "additionalItems", "minItems", "maxItems"})) meant |= kArray;
    if (has({"minLength", "maxLength", "pattern"})) meant |= kString;
    if (has({"format"})) meant |= kString;
    if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
      meant |= kInteger | kFraction;
    }
    FLOTILLA_TRY_STATUS(read_values(*schema, out));
    FLOTILLA_TRY_STATUS(read_sizes(*schema, out));
  }
  for (const bj::object* schema : alternative) FLOTILLA_TRY_STATUS(read_numbers(*schema, out));
  out.is_free = !typed && meant == 0 && !out.values;
  if (!typed && meant != 0 && !out.values) out.types &= meant;
  if (out.values) {
    std::erase_if(*out.values, [&](const bj::value* value) {
      return (type_of(*value) & out.types) == 0 || !within(*value, out);
    });
    constexpr std::uint8_t kNested = kArray | kObject;
    const bool nested = std::any_of(out.values->begin(), out.values->end(),
                                    [](const bj::value* value) { return value->is_structured(); });
    if (nested && (meant & kNested) != 0) {
      const std::string path = path_of(alternative.front());
      return unsupported(path,
                         "an enum of arrays or objects together with keywords about their parts "
                         "is not supported");
    }
  }
  return out;
}

Status SchemaReader::check_exclusive(const bj::array& branches, const std::string& path) {
  if (!exclusive_.insert(&branches).second) return ok_status();
  for (std::size_t i = 0; i < branches.size(); ++i) {
    for (std::size_t j = 0; j < branches.size(); ++j) {
      if (i == j) continue;
      FLOTILLA_TRY(const bool fine, excludes(branches[i], branches[j], 0));
      if (!fine) {
        return unsupported(path,
                           "branches " + std::to_string(std::min(i, j)) + " and " +
                               std::to_string(std::max(i, j)) +
                               " are not certain to exclude each other; use anyOf, or give them "
                               "different types or a property with different constants");
      }
    }
  }
  return ok_status();
}

Result<bool> SchemaReader::excludes(const bj::value& written, const bj::value& other, int depth) {
  FLOTILLA_TRY(const auto ours, alternatives({&written}));
  FLOTILLA_TRY(const auto theirs, alternatives({&other}));
  for (const Alternative& a : ours) {
    for (const Alternative& b : theirs) {
      FLOTILLA_TRY(const bool fine, excludes(a, b, depth));
      if (!fine) return false;
    }
  }
  return true;
}

Result<bool> SchemaReader::excludes(const Alternative& written, const Alternative& other,
                                    int depth) {
  if (depth > 3) return false;
  FLOTILLA_TRY(const Limits a, limits(written));
  FLOTILLA_TRY(Limits b, limits(other));
  // The other schema means what it says: without `type` it allows all types.
  const bool other_typed = std::any_of(other.begin(), other.end(), [](const bj::object* schema) {
    return member(*schema, "type") != nullptr;
  });
  if (!other_typed && !b.values) b.types = kAllTypes;
  if (a.values) {
    return std::none_of(a.values->begin(), a.values->end(), [&](const bj::value* value) {
      if ((type_of(*value) & b.types) == 0 || !within(*value, b)) return false;
      return !b.values || std::any_of(b.values->begin(), b.values->end(),
                                      [&](const bj::value* v) { return same_value(*v, *value); });
    });
  }
  const std::uint8_t shared = a.types & b.types;
  if (shared == 0) return true;
  if (shared != kObject) return false;
  FLOTILLA_TRY(const Members ours, members(written));
  FLOTILLA_TRY(const Members theirs, members(other));
  const auto find = [](const Members& list, std::string_view name) -> const Members::Named* {
    for (const Members::Named& named : list.named) {
      if (named.name == name) return &named;
    }
    return nullptr;
  };
  for (const Members::Named& named : theirs.named) {
    // They need what is never written.
    const Members::Named* own = find(ours, named.name);
    if (named.required && ours.rest.empty() && (own == nullptr || own->impossible)) return true;
  }
  for (const Members::Named& named : ours.named) {
    if (!named.required) continue;
    // What is always written has a value that they refuse.
    const Members::Named* own = find(theirs, named.name);
    if (own == nullptr) {
      const bool closed = std::any_of(other.begin(), other.end(), [](const bj::object* schema) {
        const bj::value* additional = member(*schema, "additionalProperties");
        return additional != nullptr && additional->is_bool() && !additional->get_bool();
      });
      if (closed && theirs.rest.empty()) return true;
      continue;
    }
    if (own->impossible) return true;
    bool all = true;
    FLOTILLA_TRY(const auto a_values, alternatives(named.schemas));
    FLOTILLA_TRY(const auto b_values, alternatives(own->schemas));
    for (const Alternative& x : a_values) {
      for (const Alternative& y : b_values) {
        FLOTILLA_TRY(const bool fine, excludes(x, y, depth + 1));
        all = all && fine;
      }
    }
    if (all) return true;
  }
  return false;
}

}  // namespace flotilla::grammar
