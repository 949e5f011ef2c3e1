#include "flotilla/sampling/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace flotilla::sampling {
namespace {

// The parameter that is refused, or "" when all is well.
std::string refused(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  const Status status = validate(params, 100);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().param;
}

TEST(SamplingParams, ValuesOutOfRangeAreNamed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  using P = SamplingParams;
  for (const double bad : {0.0, -1.0, 1e9, nan}) {
    EXPECT_EQ(refused([&](P& p) { p.repetition_penalty = bad; }), "repetition_penalty");
  }
  for (const double bad : {-1.0, inf, nan}) {
    EXPECT_EQ(refused([&](P& p) { p.temperature = bad; }), "temperature");
  }
  for (const double bad : {0.0, -0.1, 1.5, nan}) {
    EXPECT_EQ(refused([&](P& p) { p.top_p = bad; }), "top_p");
  }
  EXPECT_EQ(refused([](P& p) { p.top_k = -5; }), "top_k");
  EXPECT_EQ(refused([](P& p) { p.min_p = 2; }), "min_p");
  EXPECT_EQ(refused([](P& p) { p.presence_penalty = 100; }), "presence_penalty");
  EXPECT_EQ(refused([](P& p) { p.frequency_penalty = -2.5; }), "frequency_penalty");
  EXPECT_EQ(refused([](P& p) { p.logit_bias = {{999999999, 1.0}}; }), "logit_bias");
  EXPECT_EQ(refused([](P& p) { p.logit_bias = {{-1, 1.0}}; }), "logit_bias");
  EXPECT_EQ(refused([](P& p) { p.logit_bias = {{5, 101.0}}; }), "logit_bias");
}

TEST(SamplingParams, ExtremesInRangeAreAccepted) {
  using P = SamplingParams;
  EXPECT_EQ(refused([](P& p) { p.temperature = 1e-30; }), "");
  EXPECT_EQ(refused([](P& p) { p.temperature = 1e9; }), "");
  EXPECT_EQ(refused([](P& p) { p.top_p = 1e-9; }), "");
  EXPECT_EQ(refused([](P& p) { p.logit_bias = {{99, -100.0}}; }), "");
}

TEST(SamplingParams, MessagesCarryTheNumbers) {
  SamplingParams params;
  params.min_p = 2;
  EXPECT_EQ(validate(params, 0).error().message, "min_p 2 is not between 0 and 1");
}

}  // namespace
}  // namespace flotilla::sampling
