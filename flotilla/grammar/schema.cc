#include "flotilla/grammar/schema.h"

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/grammar/regex.h"

namespace flotilla::grammar {
namespace bj = boost::json;
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

void add_schema(Conjunction& to, const bj::value* schema) {
  if (schema->is_bool() && schema->get_bool()) return;
  if (schema->is_object() && schema->get_object().empty()) return;
  const auto at = std::lower_bound(to.begin(), to.end(), schema);
  if (at == to.end() || *at != schema) to.insert(at, schema);
}

// Spends one of `budget` per value; false when it is too small. Bounds the depth too.
bool is_small(const bj::value& value, int& budget) {
  if (--budget < 0) return false;
  if (const bj::array* array = value.if_array()) {
    for (const bj::value& item : *array) {
      if (!is_small(item, budget)) return false;
    }
  } else if (const bj::object* object = value.if_object()) {
    for (const auto& entry : *object) {
      if (!is_small(entry.value(), budget)) return false;
    }
  }
  return true;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// The order in which templates write the keys of calls.
bool precedes(const Members::Named& a, const Members::Named& b) {
  return std::lexicographical_compare(a.name.begin(), a.name.end(), b.name.begin(), b.name.end(),
                                      [](char x, char y) { return lower(x) < lower(y); });
}

}  // namespace

SchemaCompiler::SchemaCompiler(AutomatonBuilder& builder, ValueWriter& writer,
                               const bj::value& root, std::string path)
    : b_(builder), writer_(writer), reader_(root, std::move(path)), root_(root) {}

Result<RuleId> SchemaCompiler::compile(bool object_only) {
  Conjunction root;
  add_schema(root, &root_);
  const RuleId rule = rule_of(root, object_only);
  while (!tasks_.empty()) {
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    FLOTILLA_TRY_STATUS(emit(task));
    if (b_.overflowed()) {
      return Error{ErrorCode::kTooLarge,
                   "'" + reader_.path_of(&root_) + "': the schema needs more than " +
                       std::to_string(AutomatonBuilder::kMaxStates) + " states",
                   reader_.path_of(&root_)};
    }
  }
  return rule;
}

const bj::value* SchemaCompiler::first_like(const bj::value* schema) {
  const auto [it, fresh] = first_like_.emplace(schema, schema);
  int budget = 64;  // comparing large ones at every level would cost the square of their size
  if (!fresh || !schema->is_object() || !is_small(*schema, budget)) return it->second;
  bj::object plain = schema->get_object();
  for (const char* key : {"title", "description", "default", "examples", "$comment"})
    plain.erase(key);
  std::string text = bj::serialize(plain);
  it->second = by_text_.emplace(std::move(text), schema).first->second;
  return it->second;
}

RuleId SchemaCompiler::rule_of(const Conjunction& asked, bool object_only) {
  Conjunction schemas;
  for (const bj::value* schema : asked) add_schema(schemas, first_like(schema));
  if (schemas.empty()) return object_only ? writer_.any_object() : writer_.any_value();
  const auto it = rules_.find({schemas, object_only});
  if (it != rules_.end()) return it->second;
  const StateId from = b_.add_state(), to = b_.add_state();
  b_.mark_end(to);
  const RuleId rule = b_.add_rule(from);
  rules_.emplace(std::pair(schemas, object_only), rule);
  tasks_.push_back({schemas, from, to, object_only});
  return rule;
}

Status SchemaCompiler::emit(const Task& task) {
  FLOTILLA_TRY(const std::vector<Alternative> alternatives, reader_.alternatives(task.schemas));
  for (const Alternative& alternative : alternatives) {
    FLOTILLA_TRY(Limits limits, reader_.limits(alternative));
    if (task.object_only) limits.types &= kObject;
    if (limits.is_free && !task.object_only) {
      b_.add_call(task.from, writer_.any_value(), task.to);
    } else {
      FLOTILLA_TRY_STATUS(emit_values(alternative, limits, task.from, task.to));
    }
  }
  return ok_status();
}

Status SchemaCompiler::emit_values(const Alternative& alternative, const Limits& limits,
                                   StateId from, StateId to) {
  if (limits.values) {
    for (const bj::value* value : *limits.values) writer_.literal(*value, from, to);
    return ok_status();
  }
  const auto named = [&](Status status) -> Status {
    if (status.ok() || !status.error().param.empty()) return status;
    const std::string path =
        alternative.empty() ? reader_.path_of(&root_) : reader_.path_of(alternative.front());
    return Error{status.error().code, "'" + path + "': " + status.error().message, path};
  };
  if ((limits.types & kNull) != 0) b_.add_literal(from, "null", to);
  if ((limits.types & kBoolean) != 0) {
    b_.add_literal(from, "true", to);
    b_.add_literal(from, "false", to);
  }
  if ((limits.types & (kInteger | kFraction)) != 0) {
    NumberBounds bounds = limits.number;
    bounds.integer = (limits.types & kFraction) == 0;
    const Status status = emit_number(b_, bounds, from, to);
    // Empty bounds only matter when no other type is left: then the whole is empty.
    if (!status.ok() && status.error().code != ErrorCode::kInvalidArgument) return named(status);
  }
  if ((limits.types & kString) != 0) FLOTILLA_TRY_STATUS(named(emit_string(limits, from, to)));
  if ((limits.types & kArray) != 0) {
    FLOTILLA_TRY_STATUS(named(emit_array(alternative, limits, from, to)));
  }
  if ((limits.types & kObject) != 0) {
    FLOTILLA_TRY_STATUS(named(emit_object(alternative, limits, from, to)));
  }
  return ok_status();
}

Status SchemaCompiler::emit_string(const Limits& limits, StateId from, StateId to) {
  if (limits.min_length > limits.max_length) return ok_status();
  if (limits.texts.empty()) {
    const std::uint64_t most = ValueWriter::kMaxStringLength;
    if (limits.min_length > most || (limits.max_length != kNone && limits.max_length > most)) {
      return Error{ErrorCode::kUnsupported,
                   "minLength and maxLength are supported up to " + std::to_string(most)};
    }
    writer_.string(limits.min_length, limits.max_length, from, to);
    return ok_status();
  }
  Dfa all = limits.texts.front();
  for (std::size_t i = 1; i < limits.texts.size(); ++i) {
    FLOTILLA_TRY(all, combine(all, limits.texts[i], Combination::kBoth));
  }
  if (limits.min_length > 0 || limits.max_length != kNone) {
    FLOTILLA_TRY(all, with_length(all, limits.min_length, limits.max_length));
  }
  writer_.string_of(all, from, to);
  return ok_status();
}

Status SchemaCompiler::emit_array(const Alternative& alternative, const Limits& limits,
                                  StateId from, StateId to) {
  // Per place in the list what all schemas say of it; `rest` of the places behind.
  std::vector<Conjunction> places;
  Conjunction rest;
  bool rest_is_closed = false, rest_is_spoken = false;
  for (const bj::object* schema : alternative) {
    const std::string path = reader_.path_of(schema);
    const bj::value* items = member(*schema, "items");
    const bj::value* prefix = member(*schema, "prefixItems");
    const bj::value* others = items;
    std::string prefix_path = path + ".prefixItems", rest_path = path + ".items";
    if (items != nullptr && items->is_array()) {  // before draft 2020-12
      prefix = items;
      others = member(*schema, "additionalItems");
      prefix_path = path + ".items";
      rest_path = path + ".additionalItems";
    }
    std::size_t covered = 0;
    if (prefix != nullptr) {
      if (!prefix->is_array()) return SchemaReader::invalid(prefix_path, "must be an array");
      covered = prefix->get_array().size();
    }
    const std::size_t before = places.size();
    if (covered > before) places.resize(covered, rest);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const bj::value* own = i < covered ? &prefix->get_array()[i] : others;
      if (own == nullptr) continue;
      reader_.set_path(own, i < covered ? prefix_path + "[" + std::to_string(i) + "]" : rest_path);
      add_schema(places[i], own);
    }
    if (others != nullptr) {
      reader_.set_path(others, rest_path);
      add_schema(rest, others);
      rest_is_spoken = true;
    }
    rest_is_closed =
        rest_is_closed || (others != nullptr && others->is_bool() && !others->get_bool());
  }
  if (!places.empty() && !rest_is_spoken && limits.min_items <= places.size())
    rest_is_closed = true;
  std::uint64_t max = limits.max_items;
  if (rest_is_closed) max = std::min<std::uint64_t>(max, places.size());
  if (limits.min_items > max) return ok_status();

  // A chain of items; where any number may follow, its end is a loop.
  const std::uint64_t chain =
      max != kNone ? max : std::max<std::uint64_t>({limits.min_items, places.size(), 1});
  const StateId opened = b_.add_state();
  b_.add_byte(from, '[', opened);
  if (limits.min_items == 0) b_.add_byte(opened, ']', to);
  StateId at = opened;
  for (std::uint64_t i = 0; i < chain && !b_.overflowed(); ++i) {
    StateId item = at;
    if (i > 0) {
      item = b_.add_state();
      writer_.comma(at, item);
    }
    const StateId behind = b_.add_state();
    b_.add_call(item, rule_of(i < places.size() ? places[i] : rest), behind);
    if (i + 1 >= limits.min_items) b_.add_byte(behind, ']', to);
    at = behind;
  }
  if (max == kNone) {
    const StateId item = b_.add_state();
    writer_.comma(at, item);
    b_.add_call(item, rule_of(rest), at);
  }
  return ok_status();
}

Status SchemaCompiler::emit_object(const Alternative& alternative, const Limits& limits,
                                   StateId from, StateId to) {
  FLOTILLA_TRY(Members members, reader_.members(alternative));
  const std::string path =
      alternative.empty() ? reader_.path_of(&root_) : reader_.path_of(alternative.front());
  std::erase_if(members.named, [](const Members::Named& m) { return m.impossible && !m.required; });
  if (std::any_of(members.named.begin(), members.named.end(),
                  [](const Members::Named& m) { return m.impossible; })) {
    return ok_status();
  }
  if (!writer_.is_json()) std::stable_sort(members.named.begin(), members.named.end(), precedes);
  std::uint64_t num_required = 0;
  for (const Members::Named& m : members.named) num_required += m.required ? 1 : 0;
  const std::uint64_t least = std::max(limits.min_properties, num_required);
  const std::uint64_t most =
      members.rest.empty() ? std::min<std::uint64_t>(limits.max_properties, members.named.size())
                           : limits.max_properties;
  if (least > most) return ok_status();
  // Other keys may come twice, which counts once for a reader.
  if (!members.rest.empty() && limits.min_properties > std::max<std::uint64_t>(num_required, 1)) {
    return SchemaReader::unsupported(
        path + ".minProperties",
        "'minProperties' above 1 is not supported together with keys that the "
        "schema does not name");
  }
  const bool counts =
      limits.max_properties != kNone &&
      limits.max_properties < members.named.size() + (members.rest.empty() ? 0 : kNone / 2);
  // Levels: how many members were written; the last level stands for all above it.
  const std::uint64_t top = std::max<std::uint64_t>(
      1, counts ? most
                : std::max(limits.min_properties > num_required ? limits.min_properties : 0,
                           std::uint64_t{1}));
  if (top > 200'000 || top * (members.named.size() + 1) > 200'000) {
    return Error{ErrorCode::kTooLarge, "'" + path + "': too many properties to count", path};
  }

  // One automaton state per (members so far, next name).
  std::vector<StateId> row(top + 1);
  for (StateId& s : row) s = b_.add_state();
  b_.add_byte(from, '{', row[0]);
  const auto write_member = [&](StateId at, bool first, auto key, RuleId value,
                                StateId behind) -> Status {
    StateId start = at;
    if (!first) {
      start = b_.add_state();
      writer_.comma(at, start);
    }
    const StateId colon = b_.add_state();
    FLOTILLA_TRY_STATUS(key(start, colon));
    b_.add_call(colon, value, behind);
    return ok_status();
  };
  for (const Members::Named& m : members.named) {
    const RuleId value = rule_of(m.schemas);
    std::vector<StateId> next(top + 1);
    for (StateId& s : next) s = b_.add_state();
    for (std::uint64_t level = 0; level <= top && !b_.overflowed(); ++level) {
      if (!m.required) b_.add_empty(row[level], next[level]);
      if (counts && level >= most) continue;
      const std::uint64_t after = std::min(level + 1, top);
      FLOTILLA_TRY_STATUS(write_member(
          row[level], level == 0,
          [&](StateId s, StateId t) -> Status {
            if (writer_.key(m.name, s, t)) return ok_status();
            return SchemaReader::unsupported(
                path + ".properties." + m.name,
                "the model's notation of calls cannot write this name");
          },
          value, next[after]));
    }
    row = std::move(next);
  }
  if (!members.rest.empty()) {
    AutomatonBuilder names;
    const StateId start = names.add_state(), end = names.add_state();
    for (const Members::Named& m : members.named) names.add_literal(start, m.name, end);
    FLOTILLA_TRY(Dfa named, Dfa::from(names, start, end));
    FLOTILLA_TRY(const Dfa free, combine(any_text(), named, Combination::kFirstOnly));
    for (const Members::Rest& rest : members.rest) {
      Dfa keys = free;
      for (const Members::Rest& other : members.rest) {
        if (!other.pattern) continue;
        FLOTILLA_TRY(const Dfa pattern, regex_to_dfa(*other.pattern, RegexMode::kSearch));
        const bool own = other.pattern == rest.pattern;
        FLOTILLA_TRY(keys,
                     combine(keys, pattern, own ? Combination::kBoth : Combination::kFirstOnly));
      }
      const RuleId value = rule_of(rest.schemas);
      // One rule for the key, however often it is needed.
      const StateId key_from = b_.add_state(), key_to = b_.add_state();
      b_.mark_end(key_to);
      FLOTILLA_TRY_STATUS(writer_.key_of(keys, key_from, key_to));
      const RuleId key = b_.add_rule(key_from);
      for (std::uint64_t level = 0; level <= top; ++level) {
        if (counts && level >= most) continue;
        FLOTILLA_TRY_STATUS(write_member(
            row[level], level == 0,
            [&](StateId s, StateId t) -> Status {
              b_.add_call(s, key, t);
              return ok_status();
            },
            value, row[std::min(level + 1, top)]));
      }
    }
  }
  for (std::uint64_t level = 0; level <= top; ++level) {
    if (level >= std::min(limits.min_properties, top)) b_.add_byte(row[level], '}', to);
  }
  return ok_status();
}

}  // namespace flotilla::grammar
