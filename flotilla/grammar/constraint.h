// What an output must look like, as a request asks for it. Part of a job: it travels with it.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <vector>

namespace flotilla::grammar {

struct Constraint {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar };
  Kind kind = Kind::kNone;         // of the answer's text
  boost::json::value schema = {};  // kJsonSchema
  std::string text = {};           // kRegex, kGrammar: the source
  std::vector<std::string> choices = {};
  std::string param =
      {};  // where the client wrote it, for errors: "response_format.json_schema.schema"

  // How calls are constrained. kFree: not at all. kStrict: the model may call or answer; what it
  // calls is a tool of the list and has the arguments of its schema. kForced: it must call.
  enum class Calls { kFree, kStrict, kForced };
  Calls calls = Calls::kFree;
  std::vector<std::string> strict_tools = {};  // whose schema is refused when it cannot be honoured
  std::string function = {};                   // kForced: the only one it may call; empty: any
  bool parallel = true;                        // false: one call

  bool is_none() const { return kind == Kind::kNone && calls == Calls::kFree; }
  bool operator==(const Constraint&) const = default;
};

}  // namespace flotilla::grammar
