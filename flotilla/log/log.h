// The event log: one line per event, an event name and fields. Never prompts, completions, keys or
// tokens of access. Thread-safe. Not for kernels or per-token paths.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "flotilla/base/result.h"

namespace flotilla::log {

enum class Level { kDebug, kInfo, kWarn, kError };
enum class Format { kText, kJson };

struct Field {
  std::string_view name;
  std::string value;
  bool is_string = true;

  Field(std::string_view n, std::string_view v) : name(n), value(v) {}
  Field(std::string_view n, const std::string& v) : name(n), value(v) {}
  Field(std::string_view n, const char* v) : name(n), value(v) {}
  Field(std::string_view n, bool v) : name(n), value(v ? "true" : "false"), is_string(false) {}
  template <class T>
  requires std::is_arithmetic_v<T> Field(std::string_view n, T v)
      : name(n), value(std::to_string(v)), is_string(false) {}
};
using Fields = std::initializer_list<Field>;

// Call once, early; before that, events of level info and above go to standard error as text.
void configure(Level level, Format format);
Level level();
Format format();
// "debug", "info", "warn", "error"
Result<Level> parse_level(std::string_view name);
std::string_view to_string(Level level);
std::string_view to_string(Format format);

void debug(std::string_view event, Fields fields);
void info(std::string_view event, Fields fields);
void warn(std::string_view event, Fields fields);
void error(std::string_view event, Fields fields);

}  // namespace flotilla::log
