// Numbers in JSON's notation within bounds. At most 15 significant digits in front of the point and
// as many in all where a bound is exclusive, so that a reader's double is never rounded onto it.
#pragma once

#include <cstdint>
#include <optional>

#include "flotilla/base/result.h"
#include "flotilla/grammar/automaton.h"

namespace flotilla::grammar {

struct NumberBounds {
  std::optional<double> minimum, maximum;
  bool exclusive_minimum = false, exclusive_maximum = false;
  bool integer = false;
  std::int64_t multiple_of = 1;  // above 1: integers only
};

inline constexpr std::int64_t kMaxInteger = 999'999'999'999'999;
inline constexpr std::int64_t kMaxMultipleOf = 1'000;

// Adds the numbers within `bounds` between two states; kInvalidArgument when there are none.
Status emit_number(AutomatonBuilder& builder, const NumberBounds& bounds, StateId from, StateId to);

}  // namespace flotilla::grammar
