// Money: whole micro-units (a millionth of the operator's currency) in 64 bits. No floating point,
// no silent overflow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flotilla/base/result.h"

namespace flotilla::coordinator {

// More tokens than any job has: a node that reports more is wrong, and sums of them do not
// overflow.
inline constexpr std::uint64_t kMaxJobTokens = std::uint64_t{1} << 31;

using Micro = std::int64_t;

// No single amount or price exceeds it, so that sums of many stay in range.
inline constexpr Micro kMaxAmount = 1'000'000'000'000'000;  // a thousand million units

// nullopt when the sum does not fit.
std::optional<Micro> add_checked(Micro a, Micro b);

// Micro-units per million tokens.
struct Price {
  Micro input = 0;
  Micro cached_input = 0;
  Micro output = 0;
  bool operator==(const Price&) const = default;
  bool is_free() const { return input == 0 && cached_input == 0 && output == 0; }
};
// Each from 0 to kMaxAmount, cached input not above input.
Status check_price(const Price& price);

struct TokenCounts {
  std::int64_t prompt = 0;
  std::int64_t cached = 0;  // of the prompt
  std::int64_t output = 0;
  bool operator==(const TokenCounts&) const = default;
};

// The sum of the three parts, rounded up once to a whole micro-unit. Counts below zero count as
// zero, cached ones beyond the prompt as the prompt; what does not fit is INT64_MAX, which nobody
// can pay.
Micro cost_of(const Price& price, const TokenCounts& tokens);

// `part` of `amount`, rounded down: amount * part / whole. `whole` above 0, 0 <= part <= whole.
Micro share_of(Micro amount, std::uint64_t part, std::uint64_t whole);

// "12.5", "-0.000001": units with up to six decimals.
Result<Micro> parse_amount(std::string_view text);
std::string format_amount(Micro amount);  // "12.50": at least two decimals, no more than needed

}  // namespace flotilla::coordinator
