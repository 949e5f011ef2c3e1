#include "flotilla/coordinator/money/amount.h"

#include <algorithm>
#include <limits>

#include "flotilla/base/check.h"

namespace flotilla::coordinator {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::int64_t kPerMillion = 1'000'000;
constexpr Micro kUnit = 1'000'000;

Wide wide(std::int64_t value) { return static_cast<Wide>(std::max<std::int64_t>(value, 0)); }

Micro narrow(Wide value) {
  const auto max = static_cast<Wide>(std::numeric_limits<Micro>::max());
  return static_cast<Micro>(std::min(value, max));
}

}  // namespace

std::optional<Micro> add_checked(Micro a, Micro b) {
  Micro sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

Status check_price(const Price& price) {
  for (const Micro part : {price.input, price.cached_input, price.output}) {
    if (part < 0 || part > kMaxAmount) {
      return Error{ErrorCode::kInvalidArgument,
                   "a price is from 0 to " + format_amount(kMaxAmount) + " per million tokens",
                   "price"};
    }
  }
  if (price.cached_input > price.input) {
    return Error{ErrorCode::kInvalidArgument,
                 "cached input must not cost more than input (" + format_amount(price.input) + ")",
                 "cached_input"};
  }
  return ok_status();
}

Micro cost_of(const Price& price, const TokenCounts& tokens) {
  const Wide prompt = wide(tokens.prompt);
  const Wide cached = std::min(wide(tokens.cached), prompt);
  // Each product has at most 63 + 50 bits.
  const Wide sum = (prompt - cached) * wide(price.input) + cached * wide(price.cached_input) +
                   wide(tokens.output) * wide(price.output);
  return narrow((sum + (kPerMillion - 1)) / kPerMillion);
}

Micro share_of(Micro amount, std::uint64_t part, std::uint64_t whole) {
  FLOTILLA_CHECK(whole > 0 && part <= whole, "a share is a part of a whole");
  return narrow(wide(amount) * part / whole);
}

Result<Micro> parse_amount(std::string_view text) {
  const Error bad{ErrorCode::kInvalidArgument,
                  "an amount is written like 12.50, with up to six decimals and at most " +
                      format_amount(kMaxAmount),
                  "amount"};
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  std::string decimals(point == std::string_view::npos ? "" : text.substr(point + 1));
  if (whole.empty() || whole.size() > 10 || decimals.size() > 6 || text.ends_with('.')) return bad;
  decimals.resize(6, '0');
  Micro value = 0;
  for (const char c : std::string(whole) + decimals) {
    if (c < '0' || c > '9') return bad;
    value = value * 10 + (c - '0');  // at most 16 digits
  }
  if (value > kMaxAmount) return bad;
  return negative ? -value : value;
}

std::string format_amount(Micro amount) {
  const auto magnitude =
      amount < 0 ? 0 - static_cast<std::uint64_t>(amount) : static_cast<std::uint64_t>(amount);
  std::string decimals = std::to_string(magnitude % kUnit);
  decimals.insert(0, 6 - decimals.size(), '0');
  while (decimals.size() > 2 && decimals.back() == '0') decimals.pop_back();
  return (amount < 0 ? "-" : "") + std::to_string(magnitude / kUnit) + "." + decimals;
}

}  // namespace flotilla::coordinator
