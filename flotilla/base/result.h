// Result<T> and Status: how expected failures travel. Spelled close to std::expected for a later
// move.
//
//   Result<int> parse(std::string_view text);
//   Status run() {
//     FLOTILLA_TRY(int n, parse("12"));       // declares n, or returns the error
//     FLOTILLA_TRY_STATUS(check(n));          // returns the error, if any
//     return ok_status();
//   }
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "flotilla/base/check.h"
#include "flotilla/base/error.h"

namespace flotilla {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    FLOTILLA_CHECK(ok(), to_string(std::get<1>(state_)));
    return std::get<0>(state_);
  }
  const T& value() const& {
    FLOTILLA_CHECK(ok(), to_string(std::get<1>(state_)));
    return std::get<0>(state_);
  }
  T&& value() && {
    FLOTILLA_CHECK(ok(), to_string(std::get<1>(state_)));
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    FLOTILLA_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }
  Error&& error() && {
    FLOTILLA_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    FLOTILLA_CHECK(!ok(), "error() of a Status that is ok");
    return *error_;
  }
  Error&& error() && {
    FLOTILLA_CHECK(!ok(), "error() of a Status that is ok");
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

inline Status ok_status() { return {}; }

}  // namespace flotilla

#define FLOTILLA_CONCAT_INNER(a, b) a##b
#define FLOTILLA_CONCAT(a, b) FLOTILLA_CONCAT_INNER(a, b)

#define FLOTILLA_TRY_IMPL(tmp, decl, expr)      \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  decl = std::move(tmp).value()

// Evaluates `expr` (a Result); binds its value to `decl`, or returns its error from the enclosing
// function.
#define FLOTILLA_TRY(decl, expr) \
  FLOTILLA_TRY_IMPL(FLOTILLA_CONCAT(try_result_, __COUNTER__), decl, expr)

#define FLOTILLA_TRY_STATUS_IMPL(tmp, expr)                          \
  do {                                                               \
    if (auto tmp = (expr); !tmp.ok()) return std::move(tmp).error(); \
  } while (false)

// Evaluates `expr` (a Status); returns its error from the enclosing function, if any.
#define FLOTILLA_TRY_STATUS(expr) \
  FLOTILLA_TRY_STATUS_IMPL(FLOTILLA_CONCAT(try_status_, __COUNTER__), expr)
