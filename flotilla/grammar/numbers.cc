#include "flotilla/grammar/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "flotilla/grammar/dfa.h"

namespace flotilla::grammar {
namespace {

constexpr int kMaxDigits = 15;

// Digits before and behind the point of a number that is not negative.
struct Decimal {
  std::string whole, fraction;
};

std::optional<Decimal> to_decimal(double value) {
  char buffer[400];
  const auto written =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  const std::string text(buffer, written.ptr);
  const std::size_t point = text.find('.');
  Decimal out{text.substr(0, point), point == std::string::npos ? "" : text.substr(point + 1)};
  if (out.whole.size() > kMaxDigits || out.fraction.size() > kMaxDigits) return std::nullopt;
  return out;
}

class NumberEmitter {
 public:
  NumberEmitter(AutomatonBuilder& builder, int max_fraction)
      : b_(builder), max_fraction_(max_fraction) {}

  void digit(StateId from, char lo, char hi, StateId to) {
    if (lo <= hi) {
      b_.add_bytes(from, static_cast<std::uint8_t>(lo), static_cast<std::uint8_t>(hi), to);
    }
  }
  // Up to `count` digits, or exactly that many.
  void digits(StateId from, int count, bool exactly, StateId to) {
    for (int i = 0; i < count; ++i) {
      if (!exactly) b_.add_empty(from, to);
      const StateId next = b_.add_state();
      digit(from, '0', '9', next);
      from = next;
    }
    b_.add_empty(from, to);
  }
  // Nothing, or a point and digits.
  void any_fraction(StateId from, StateId to) {
    b_.add_empty(from, to);
    if (max_fraction_ > 0) {
      const StateId point = b_.add_state(), first = b_.add_state();
      b_.add_byte(from, '.', point);
      digit(point, '0', '9', first);
      digits(first, max_fraction_ - 1, false, to);
    }
  }
  void more_digits(StateId from, int written, StateId to) {
    digits(from, std::max(0, max_fraction_ - written), false, to);
  }
  // Whole parts of `count` digits.
  void any_whole(StateId from, int count, StateId to) {
    const StateId next = b_.add_state();
    digit(from, count == 1 ? '0' : '1', '9', next);
    digits(next, count - 1, true, to);
  }

  // Not negative, at least `low`; the whole part has at most kMaxDigits.
  void at_least(const Decimal& low, bool exclusive, StateId from, StateId to) {
    const int n = static_cast<int>(low.whole.size());
    for (int longer = n + 1; longer <= kMaxDigits; ++longer) {
      const StateId tail = b_.add_state();
      any_whole(from, longer, tail);
      any_fraction(tail, to);
    }
    StateId at = from;
    for (int i = 0; i < n; ++i) {
      const StateId tail = b_.add_state(), end = b_.add_state();
      digit(at, static_cast<char>(low.whole[static_cast<std::size_t>(i)] + 1), '9', tail);
      digits(tail, n - i - 1, true, end);
      any_fraction(end, to);
      const StateId next = b_.add_state();
      b_.add_byte(at, low.whole[static_cast<std::size_t>(i)], next);
      at = next;
    }
    if (low.fraction.empty() && !exclusive) return any_fraction(at, to);
    if (max_fraction_ == 0) return;
    StateId behind = b_.add_state();
    b_.add_byte(at, '.', behind);
    int written = 0;
    for (const char c : low.fraction) {
      const StateId tail = b_.add_state(), next = b_.add_state();
      digit(behind, static_cast<char>(c + 1), '9', tail);
      more_digits(tail, ++written, to);
      b_.add_byte(behind, c, next);
      behind = next;
    }
    if (!exclusive) return more_digits(behind, written, to);
    // Something above zero must follow.
    for (; written < max_fraction_; ++written) {
      const StateId tail = b_.add_state(), next = b_.add_state();
      digit(behind, '1', '9', tail);
      more_digits(tail, written + 1, to);
      b_.add_byte(behind, '0', next);
      behind = next;
    }
  }

  // Not negative, at most `high`.
  void at_most(const Decimal& high, bool exclusive, StateId from, StateId to) {
    const int n = static_cast<int>(high.whole.size());
    for (int shorter = 1; shorter < n; ++shorter) {
      const StateId tail = b_.add_state();
      any_whole(from, shorter, tail);
      any_fraction(tail, to);
    }
    StateId at = from;
    for (int i = 0; i < n; ++i) {
      const char c = high.whole[static_cast<std::size_t>(i)];
      const StateId tail = b_.add_state(), end = b_.add_state();
      digit(at, i == 0 && n > 1 ? '1' : '0', static_cast<char>(c - 1), tail);
      digits(tail, n - i - 1, true, end);
      any_fraction(end, to);
      const StateId next = b_.add_state();
      b_.add_byte(at, c, next);
      at = next;
    }
    const bool fraction_left =
        std::any_of(high.fraction.begin(), high.fraction.end(), [](char c) { return c != '0'; });
    if (fraction_left || !exclusive) b_.add_empty(at, to);
    if (max_fraction_ == 0) return;
    StateId behind = b_.add_state();
    b_.add_byte(at, '.', behind);
    int written = 0;
    for (const char c : high.fraction) {
      const StateId tail = b_.add_state(), next = b_.add_state();
      digit(behind, '0', static_cast<char>(c - 1), tail);
      more_digits(tail, ++written, to);
      b_.add_byte(behind, c, next);
      behind = next;
      // A shorter fraction is smaller as long as something above zero is missing.
      const bool smaller = high.fraction.find_first_not_of(
                               '0', static_cast<std::size_t>(written)) != std::string::npos;
      if (smaller) b_.add_empty(behind, to);
    }
    if (exclusive) return;
    if (written > 0) b_.add_empty(behind, to);
    for (; written < max_fraction_; ++written) {
      const StateId next = b_.add_state();
      b_.add_byte(behind, '0', next);
      behind = next;
      b_.add_empty(behind, to);
    }
  }

 private:
  AutomatonBuilder& b_;
  const int max_fraction_;
};

struct Side {
  std::optional<double> low, high;  // not negative
  bool exclusive_low = false, exclusive_high = false;
};

Error unbounded(const char* what) {
  return Error{ErrorCode::kUnsupported, std::string(what) + " has more than 15 digits"};
}

// The numbers of one side of zero, without sign. Nothing is added when there are none.
Status emit_side(AutomatonBuilder& builder, const Side& side, int max_fraction, StateId from,
                 StateId to) {
  const auto part = [&](auto emit) {
    AutomatonBuilder b;
    const StateId start = b.add_state(), end = b.add_state();
    NumberEmitter emitter(b, max_fraction);
    emit(emitter, start, end);
    return Dfa::from(b, start, end);
  };
  const auto low = to_decimal(side.low.value_or(0));
  if (!low) return unbounded("a minimum");
  FLOTILLA_TRY(Dfa dfa, part([&](NumberEmitter& e, StateId s, StateId t) {
                 e.at_least(*low, side.exclusive_low, s, t);
               }));
  if (side.high) {
    const auto high = to_decimal(*side.high);
    if (!high) return unbounded("a maximum");
    FLOTILLA_TRY(const Dfa upper, part([&](NumberEmitter& e, StateId s, StateId t) {
                   e.at_most(*high, side.exclusive_high, s, t);
                 }));
    FLOTILLA_TRY(dfa, combine(dfa, upper, Combination::kBoth));
  }
  dfa.emit(builder, from, to);
  return ok_status();
}

// Multiples of `m`: one state per remainder, without leading zeros.
Dfa multiples(std::int64_t m) {
  Dfa out;
  const auto n = static_cast<std::size_t>(m);
  out.arcs.resize(n + 2);
  out.accepts.assign(n + 2, 0);
  out.accepts[1] = 1;      // remainder 0, of a number that does not begin with 0
  out.accepts[n + 1] = 1;  // the number 0
  const auto state = [&](std::int64_t remainder) {
    return static_cast<std::uint32_t>(1 + remainder);
  };
  out.arcs[0].push_back({'0', '0', static_cast<std::uint32_t>(n + 1)});
  for (int d = 1; d <= 9; ++d) {
    out.arcs[0].push_back(
        {static_cast<std::uint8_t>('0' + d), static_cast<std::uint8_t>('0' + d), state(d % m)});
  }
  for (std::int64_t r = 0; r < m; ++r) {
    for (int d = 0; d <= 9; ++d) {
      out.arcs[state(r)].push_back({static_cast<std::uint8_t>('0' + d),
                                    static_cast<std::uint8_t>('0' + d), state((r * 10 + d) % m)});
    }
  }
  return out;
}

Status emit_integer_side(AutomatonBuilder& builder, std::int64_t low, std::int64_t high,
                         std::int64_t multiple_of, StateId from, StateId to) {
  AutomatonBuilder b;
  const StateId start = b.add_state(), end = b.add_state();
  FLOTILLA_TRY_STATUS(emit_side(
      b, {.low = static_cast<double>(low), .high = static_cast<double>(high)}, 0, start, end));
  FLOTILLA_TRY(Dfa dfa, Dfa::from(b, start, end));
  if (multiple_of > 1) {
    FLOTILLA_TRY(dfa, combine(dfa, multiples(multiple_of), Combination::kBoth));
  }
  dfa.emit(builder, from, to);
  return ok_status();
}

Error nothing_left() {
  return Error{ErrorCode::kInvalidArgument, "no number is within the bounds"};
}

Status emit_integer(AutomatonBuilder& builder, const NumberBounds& bounds, StateId from,
                    StateId to) {
  constexpr auto kMost = static_cast<double>(kMaxInteger);
  double low = std::ceil(std::max(-kMost, bounds.minimum.value_or(-kMost)));
  double high = std::floor(std::min(kMost, bounds.maximum.value_or(kMost)));
  if (bounds.exclusive_minimum && bounds.minimum && low == *bounds.minimum) ++low;
  if (bounds.exclusive_maximum && bounds.maximum && high == *bounds.maximum) --high;
  if (!(low <= high)) return nothing_left();
  const auto first = static_cast<std::int64_t>(low), last = static_cast<std::int64_t>(high);
  if (last >= 0) {
    FLOTILLA_TRY_STATUS(emit_integer_side(builder, std::max<std::int64_t>(first, 0), last,
                                          bounds.multiple_of, from, to));
  }
  if (first < 0) {
    const StateId sign = builder.add_state();
    builder.add_byte(from, '-', sign);
    FLOTILLA_TRY_STATUS(emit_integer_side(builder, std::max<std::int64_t>(-last, 1), -first,
                                          bounds.multiple_of, sign, to));
  }
  return ok_status();
}

}  // namespace

Status emit_number(AutomatonBuilder& builder, const NumberBounds& asked, StateId from, StateId to) {
  NumberBounds bounds = asked;
  // What is written never gets there.
  constexpr double kBeyond = 1e15;
  if (bounds.maximum && *bounds.maximum >= kBeyond) {
    bounds.maximum = kBeyond - 1;
    bounds.exclusive_maximum = false;
  }
  if (bounds.minimum && *bounds.minimum <= -kBeyond) {
    bounds.minimum = 1 - kBeyond;
    bounds.exclusive_minimum = false;
  }
  if (bounds.integer || bounds.multiple_of > 1) return emit_integer(builder, bounds, from, to);
  const bool bounded = bounds.minimum.has_value() || bounds.maximum.has_value();
  if (!bounded) {
    const StateId digits = builder.add_state(), behind = builder.add_state();
    builder.add_empty(from, digits);
    builder.add_byte(from, '-', digits);
    AutomatonBuilder& b = builder;
    NumberEmitter emitter(b, kMaxDigits);
    emitter.at_least({"0", ""}, false, digits, behind);
    b.add_empty(behind, to);
    // An exponent of up to two digits keeps every number within a double.
    const StateId mark = b.add_state(), sign = b.add_state(), first = b.add_state();
    b.add_byte(behind, 'e', mark);
    b.add_byte(behind, 'E', mark);
    b.add_empty(mark, sign);
    b.add_byte(mark, '+', sign);
    b.add_byte(mark, '-', sign);
    emitter.digit(sign, '0', '9', first);
    emitter.digits(first, 1, false, to);
    return ok_status();
  }
  const double low = bounds.minimum.value_or(-HUGE_VAL), high = bounds.maximum.value_or(HUGE_VAL);
  if (low > high || (low == high && (bounds.exclusive_minimum || bounds.exclusive_maximum))) {
    return nothing_left();
  }
  int max_fraction = kMaxDigits;
  if (bounds.exclusive_minimum || bounds.exclusive_maximum) {
    for (const auto& bound : {bounds.minimum, bounds.maximum}) {
      if (!bound) continue;
      const auto decimal = to_decimal(std::fabs(*bound));
      if (!decimal) return unbounded("an exclusive bound");
      max_fraction = std::min(max_fraction, kMaxDigits - static_cast<int>(decimal->whole.size()));
    }
  }
  // Zero belongs to the side without sign.
  if (high > 0 || (high == 0 && !bounds.exclusive_maximum)) {
    Side side;
    if (low >= 0) {
      side.low = low;
      side.exclusive_low = bounds.exclusive_minimum;
    }
    if (bounds.maximum) {
      side.high = high;
      side.exclusive_high = bounds.exclusive_maximum;
    }
    FLOTILLA_TRY_STATUS(emit_side(builder, side, max_fraction, from, to));
  }
  if (low < 0) {
    Side side;
    side.low = high <= 0 ? -high : 0;
    side.exclusive_low = high <= 0 ? bounds.exclusive_maximum : true;
    if (bounds.minimum) {
      side.high = -low;
      side.exclusive_high = bounds.exclusive_minimum;
    }
    const StateId sign = builder.add_state();
    builder.add_byte(from, '-', sign);
    FLOTILLA_TRY_STATUS(emit_side(builder, side, max_fraction, sign, to));
  }
  return ok_status();
}

}  // namespace flotilla::grammar
