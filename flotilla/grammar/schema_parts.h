// Reading schemas: references, alternatives, and what a set of schemas demands together. Nothing
// here knows how values are written.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/grammar/dfa.h"
#include "flotilla/grammar/numbers.h"

namespace flotilla::grammar {

// Schemas of which all must hold; sorted, each once. Empty: anything goes.
using Conjunction = std::vector<const boost::json::value*>;
// The same after references and combinators were followed: schema objects whose own keywords all
// hold, in the order in which they were met.
using Alternative = std::vector<const boost::json::object*>;

enum TypeBit : std::uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,  // numbers that are not integers
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllTypes = 127,
};

// What an alternative demands of scalars and sizes.
struct Limits {
  std::uint8_t types = kAllTypes;
  std::optional<std::vector<const boost::json::value*>> values;  // enum and const
  NumberBounds number;
  std::uint64_t min_length = 0, max_length = ~std::uint64_t{0};
  std::vector<Dfa> texts;  // of pattern and format; all must match
  std::uint64_t min_items = 0, max_items = ~std::uint64_t{0};
  std::uint64_t min_properties = 0, max_properties = ~std::uint64_t{0};
  bool is_free = true;  // no keyword says anything
};

// What an alternative says about the members of an object.
struct Members {
  struct Named {
    std::string name;
    Conjunction schemas;
    bool required = false;
    bool impossible = false;
  };
  struct Rest {
    std::optional<std::string> pattern;  // of the key; none: keys that no pattern matches
    Conjunction schemas;
  };
  std::vector<Named> named;  // in the schema's order
  std::vector<Rest> rest;    // other keys; empty: there are none
};

class SchemaReader {
 public:
  SchemaReader(const boost::json::value& root, std::string path);

  // The alternatives of which a value must satisfy one.
  Result<std::vector<Alternative>> alternatives(const Conjunction& schemas);
  // Refuses what cannot be honoured, by name.
  Result<Limits> limits(const Alternative& alternative);
  Result<Members> members(const Alternative& alternative);

  std::string path_of(const void* schema) const;
  void set_path(const void* schema, std::string path) { paths_.emplace(schema, std::move(path)); }
  static Error invalid(const std::string& path, const std::string& message);
  static Error unsupported(const std::string& path, const std::string& message);

 private:
  static constexpr std::size_t kMaxAlternatives = 128;
  static constexpr int kMaxDepth = 64;  // of references and combinators without a value between

  Status expand(std::vector<const boost::json::value*> todo, Alternative done,
                std::vector<Alternative>& out, int depth);
  Result<const boost::json::value*> resolve(const boost::json::object& schema);
  Status check_grounded(const boost::json::value& schema, int depth);
  Status check_keywords(const boost::json::object& schema);
  Status read_numbers(const boost::json::object& schema, Limits& out);
  Status read_sizes(const boost::json::object& schema, Limits& out);
  Status read_values(const boost::json::object& schema, Limits& out);
  Result<std::uint8_t> types_of(const boost::json::object& schema);
  Result<std::optional<std::uint64_t>> count(const boost::json::object& schema,
                                             std::string_view key);

  // Whether no value that is written for one of them satisfies the other.
  Result<bool> excludes(const boost::json::value& written, const boost::json::value& other,
                        int depth);
  Result<bool> excludes(const Alternative& written, const Alternative& other, int depth);
  Status check_exclusive(const boost::json::array& branches, const std::string& path);

  const boost::json::value& root_;
  std::unordered_map<const void*, std::string> paths_;
  std::unordered_map<const void*, int> grounded_;  // 1: being checked, 2: fine
  std::unordered_set<const void*> exclusive_;      // oneOf lists that were checked
};

// Equal as JSON values: 1 and 1.0 are.
bool same_value(const boost::json::value& a, const boost::json::value& b);
const boost::json::value* member(const boost::json::object& object, std::string_view key);

}  // namespace flotilla::grammar
