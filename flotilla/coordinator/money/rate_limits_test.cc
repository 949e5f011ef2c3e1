#include "flotilla/coordinator/money/rate_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class RateLimitsTest : public ::testing::Test {
 protected:
  void set(const Limits& of_key, const Limits& of_account) {
    MoneyView view;
    if (!of_key.none()) view.key_limits[7] = of_key;
    if (!of_account.none()) view.account_limits[1] = of_account;
    limits.set(view);
  }
  Status admit(std::uint64_t key = 7) { return limits.admit(AccountId{1}, ApiKeyId{key}); }

  FakeClock clock;
  RateLimits limits{clock};
};

TEST_F(RateLimitsTest, WithoutLimitsEverybodyIsLetIn) {
  set({}, {});
  for (int i = 0; i < 1'000; ++i) EXPECT_TRUE(admit().ok());
}

TEST_F(RateLimitsTest, RequestsAreCountedAndTheRefusalSaysWhenToComeBack) {
  set({30, {}, {}}, {});
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(admit().ok());
  const Status refused = admit();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("the key's limit of 30 requests per minute"));
  EXPECT_EQ(refused.error().retry_after_s, 2);
  EXPECT_TRUE(admit(8).ok()) << "another key is not concerned";
  clock.advance(2s);
  EXPECT_TRUE(admit().ok());
  EXPECT_FALSE(admit().ok());
  clock.advance(24h);
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(admit().ok());
  EXPECT_FALSE(admit().ok()) << "no more than one minute's worth is saved up";
}

TEST_F(RateLimitsTest, KeysOfOneAccountShareItsLimit) {
  set({}, {10, {}, {}});
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(admit(1).ok());
    EXPECT_TRUE(admit(2).ok());
  }
  EXPECT_THAT(admit(3).error().message, HasSubstr("the account's limit of 10 requests"));
}

TEST_F(RateLimitsTest, ARefusalOfOneCountsForNobody) {
  set({100, {}, {}}, {1, {}, {}});
  EXPECT_TRUE(admit().ok());
  for (int i = 0; i < 500; ++i) EXPECT_FALSE(admit().ok());
  set({100, {}, {}}, {});
  for (int i = 0; i < 99; ++i) EXPECT_TRUE(admit().ok());
  EXPECT_FALSE(admit().ok());
}

TEST_F(RateLimitsTest, TokensAreTakenWhenTheyAreKnown) {
  set({{}, 600, 60}, {});
  EXPECT_TRUE(admit().ok());
  limits.note_tokens(AccountId{1}, ApiKeyId{7}, 100, 90);
  const Status refused = admit();
  EXPECT_THAT(refused.error().message, HasSubstr("60 output tokens per minute"));
  EXPECT_EQ(refused.error().retry_after_s, 31);  // 30 in debt, and one to go on
  clock.advance(31s);
  EXPECT_TRUE(admit().ok());
  limits.note_tokens(AccountId{1}, ApiKeyId{7}, 10'000, 0);
  EXPECT_THAT(admit().error().message, HasSubstr("600 input tokens per minute"));
}

TEST_F(RateLimitsTest, AChangedLimitHoldsAtOnceAndAnUnchangedOneKeepsItsLevel) {
  set({2, {}, {}}, {});
  EXPECT_TRUE(admit().ok());
  EXPECT_TRUE(admit().ok());
  set({2, {}, {}}, {5, {}, {}});
  EXPECT_FALSE(admit().ok());
  set({3, {}, {}}, {});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(admit().ok());
  EXPECT_FALSE(admit().ok());
}

}  // namespace
}  // namespace flotilla::coordinator
