#include "flotilla/coordinator/money/amount.h"

#include <gtest/gtest.h>

#include <limits>

namespace flotilla::coordinator {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Amount, IsReadAndWrittenWithoutLoss) {
  for (const auto& [text, value] :
       std::vector<std::pair<std::string, Micro>>{{"0", 0},
                                                  {"12.5", 12'500'000},
                                                  {"0.000001", 1},
                                                  {"-3.10", -3'100'000},
                                                  {"1000000000", kMaxAmount}}) {
    const auto parsed = parse_amount(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, value);
    EXPECT_EQ(*parse_amount(format_amount(value)), value);
  }
  for (const char* bad : {"", ".", "1.", ".5", "1.0000001", "1e3", "+1", "--1", "1000000000.000001",
                          "99999999999", "1 ", "0x1"}) {
    EXPECT_FALSE(parse_amount(bad).ok()) << bad;
  }
  EXPECT_EQ(format_amount(12'500'000), "12.50");
  EXPECT_EQ(format_amount(-1), "-0.000001");
  EXPECT_EQ(format_amount(std::numeric_limits<Micro>::min()), "-9223372036854.775808");
}

TEST(Amount, ACostIsRoundedUpOnce) {
  const Price price{300'000, 30'000, 1'200'000};
  EXPECT_EQ(cost_of(price, {0, 0, 0}), 0);
  EXPECT_EQ(cost_of(price, {1, 0, 0}), 1);    // 0.3
  EXPECT_EQ(cost_of(price, {10, 0, 0}), 3);   // exactly
  EXPECT_EQ(cost_of(price, {10, 10, 0}), 1);  // 0.3
  EXPECT_EQ(cost_of(price, {10, 4, 5}), 8);   // 1.8 + 0.12 + 6
  EXPECT_EQ(cost_of(price, {10, 99, 0}), 1);  // no more cached than there was
  EXPECT_EQ(cost_of(price, {-5, -5, -5}), 0);
}

TEST(Amount, NothingOverflows) {
  const Price dear{kMaxAmount, kMaxAmount, kMaxAmount};
  EXPECT_EQ(cost_of(dear, {kMax, 0, kMax}), kMax);
  EXPECT_EQ(cost_of({1, 1, 1}, {kMax, kMax, 0}), kMax / 1'000'000 + 1);
  EXPECT_FALSE(add_checked(kMax, 1));
  EXPECT_EQ(add_checked(kMax, -1), kMax - 1);
  EXPECT_EQ(share_of(kMax, kMax, kMax), kMax);
  EXPECT_EQ(share_of(10, 1, 3), 3);
}

TEST(Amount, PricesHaveTheirRange) {
  EXPECT_TRUE(check_price({5, 5, 5}).ok());
  EXPECT_FALSE(check_price({5, 6, 5}).ok());
  EXPECT_FALSE(check_price({-1, -1, 0}).ok());
  EXPECT_FALSE(check_price({0, 0, kMaxAmount + 1}).ok());
}

}  // namespace
}  // namespace flotilla::coordinator
