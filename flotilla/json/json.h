// Helpers over Boost.JSON: bounded parsing and field access that says where it failed. No value
// type of our own; objects keep the order of their keys. A .cc file that works with values includes
// <boost/json/value.hpp> (or <boost/json.hpp>); headers use only value_fwd.hpp.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"

namespace flotilla::json {

struct ParseLimits {
  std::size_t max_bytes = 64u << 20;
  std::size_t max_depth = 64;
  // A value takes some 50 bytes of memory, however short its text.
  std::size_t max_values = 16'000'000;
};

// Strict JSON (RFC 8259, valid UTF-8, no lone surrogates, no duplicate keys). The error names the
// byte offset, never the text. A leading byte order mark is skipped. Numbers out of double's range
// are refused.
Result<boost::json::value> parse(std::string_view text, const ParseLimits& limits = {});

// Reads a whole file and parses it; errors name the file.
Result<boost::json::value> parse_file(const std::string& path, const ParseLimits& limits = {});

// Member of an object; nullptr when `object` is no object, the key is absent, or the value is null.
const boost::json::value* find(const boost::json::value& object, std::string_view key);

// Typed reads of an optional member. `where` is the path of `object` for messages ("" at the top).
// Absent or null gives nullopt; a wrong type or range is kInvalidArgument with param = path of the
// member. Integers may be written as 1.0.
Result<std::optional<bool>> get_bool(const boost::json::value& object, std::string_view key,
                                     std::string_view where = {});
Result<std::optional<std::int64_t>> get_int(const boost::json::value& object, std::string_view key,
                                            std::int64_t min, std::int64_t max,
                                            std::string_view where = {});
Result<std::optional<double>> get_double(const boost::json::value& object, std::string_view key,
                                         double min, double max, std::string_view where = {});
Result<std::optional<std::string>> get_string(const boost::json::value& object,
                                              std::string_view key, std::string_view where = {});

// As above, but absent or null is an error too.
Result<std::int64_t> require_int(const boost::json::value& object, std::string_view key,
                                 std::int64_t min, std::int64_t max, std::string_view where = {});
Result<double> require_double(const boost::json::value& object, std::string_view key, double min,
                              double max, std::string_view where = {});
Result<std::string> require_string(const boost::json::value& object, std::string_view key,
                                   std::string_view where = {});
Result<bool> require_bool(const boost::json::value& object, std::string_view key,
                          std::string_view where = {});

// "a.b" from "a" and "b"; "b" when `where` is empty.
std::string join_path(std::string_view where, std::string_view key);

}  // namespace flotilla::json
