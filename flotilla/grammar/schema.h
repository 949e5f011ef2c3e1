// JSON schema to automaton. docs/constrained-output.md lists what is honoured. What cannot be
// honoured exactly is refused by its name and place; keywords that the standard does not know, and
// those that only annotate, are ignored.
//
// Where a schema leaves the choice, fewer values may be written than it allows, never more:
//  - properties come in the order of the schema (in calls: sorted, as models write them);
//  - an object whose properties are listed has no others unless `additionalProperties` or
//    `patternProperties` say so; the same for `prefixItems`;
//  - without `type`, the other keywords tell which types are meant.
#pragma once

#include <boost/json/value.hpp>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/grammar/automaton.h"
#include "flotilla/grammar/schema_parts.h"
#include "flotilla/grammar/value_writer.h"

namespace flotilla::grammar {

class SchemaCompiler {
 public:
  // `path` is what errors call the root, e.g. "response_format.json_schema.schema". The schema must
  // outlive the compiler.
  SchemaCompiler(AutomatonBuilder& builder, ValueWriter& writer, const boost::json::value& root,
                 std::string path);

  // The rule of the values that the schema allows. `object_only`: other values are left out, as
  // arguments of a call must be an object.
  Result<RuleId> compile(bool object_only = false);

 private:
  struct Task {
    Conjunction schemas;
    StateId from, to;
    bool object_only;
  };

  RuleId rule_of(const Conjunction& schemas, bool object_only = false);
  // Equal schemas mean the same wherever they stand, as references begin at the root: they share
  // their rule. The first one of those that equal `schema` up to annotations.
  const boost::json::value* first_like(const boost::json::value* schema);
  Status emit(const Task& task);
  Status emit_alternative(const Alternative& alternative, StateId from, StateId to);
  Status emit_values(const Alternative& alternative, const Limits& limits, StateId from,
                     StateId to);
  Status emit_string(const Limits& limits, StateId from, StateId to);
  Status emit_array(const Alternative& alternative, const Limits& limits, StateId from, StateId to);
  Status emit_object(const Alternative& alternative, const Limits& limits, StateId from,
                     StateId to);

  AutomatonBuilder& b_;
  ValueWriter& writer_;
  SchemaReader reader_;
  const boost::json::value& root_;
  std::map<std::pair<Conjunction, bool>, RuleId> rules_;
  std::unordered_map<const boost::json::value*, const boost::json::value*> first_like_;
  std::unordered_map<std::string, const boost::json::value*> by_text_;
  std::deque<Task> tasks_;
};

}  // namespace flotilla::grammar
