// Broken invariants: our bugs, never bad input. Active in release builds.
#pragma once

#include <string_view>

namespace flotilla {
// Prints file, line and message to standard error, then aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);
}  // namespace flotilla

#define FLOTILLA_CHECK(condition, message)                               \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::flotilla::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)

#ifdef NDEBUG
#define FLOTILLA_DCHECK(condition, message) \
  do {                                      \
  } while (false)
#else
#define FLOTILLA_DCHECK(condition, message) FLOTILLA_CHECK(condition, message)
#endif
