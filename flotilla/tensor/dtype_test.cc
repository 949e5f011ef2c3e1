#include "flotilla/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace flotilla::tensor {
namespace {

TEST(DType, NamesRoundTripAndSizesMatch) {
  for (int i = 0; i <= static_cast<int>(DType::kF8E8M0); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_GE(dtype_bytes(dtype), 1u);
  }
  EXPECT_EQ(dtype_bytes(DType::kBF16), 2u);
  EXPECT_EQ(dtype_bytes(DType::kU32), 4u);
  EXPECT_EQ(dtype_bytes(DType::kI64), 8u);
  EXPECT_FALSE(dtype_from_name("F31").has_value());
}

TEST(DType, EveryHalfConvertsToItsValueAndBack) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const int exponent = (half >> 10) & 31;
    const int mantissa = half & 1023;
    const float v = f16_to_f32(half);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(v), mantissa != 0);
      EXPECT_EQ(std::isinf(v), mantissa == 0);
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(static_cast<double>(std::fabs(v)), magnitude);
    }
    if (!std::isnan(v)) {
      ASSERT_EQ(f32_to_f16(v), half);
    } else {
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(v))));
    }
  }
}

TEST(DType, HalvesRoundToNearestEven) {
  for (std::uint32_t code = 0; code < 0x7bff; ++code) {
    const float low = f16_to_f32(static_cast<std::uint16_t>(code));
    const float high = f16_to_f32(static_cast<std::uint16_t>(code + 1));
    const float middle = low + (high - low) / 2;  // exact
    ASSERT_EQ(f32_to_f16(middle), (code & 1u) != 0 ? code + 1 : code);
    ASSERT_EQ(f32_to_f16(std::nextafterf(middle, 0.0f)), code);
    ASSERT_EQ(f32_to_f16(std::nextafterf(middle, 1e9f)), code + 1);
  }
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
}

TEST(DType, Bfloat16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_TRUE(std::isinf(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(bf16_to_f32(0xc2f7), -123.5f);
}

TEST(DType, EightBitFloatsHaveTheirTables) {
  EXPECT_EQ(e4m3_to_f32(0x7e), 448.0f);
  EXPECT_EQ(e4m3_to_f32(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_f32(0x08), 0x1p-6f);
  EXPECT_EQ(e4m3_to_f32(0xb8), -1.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7f)));
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0xff)));
  EXPECT_EQ(e8m0_to_f32(127), 1.0f);
  EXPECT_EQ(e8m0_to_f32(0), 0x1p-127f);
  EXPECT_EQ(e8m0_to_f32(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
  const float expected[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (std::uint8_t i = 0; i < 8; ++i) {
    EXPECT_EQ(e2m1_to_f32(i), expected[i]);
    EXPECT_EQ(e2m1_to_f32(static_cast<std::uint8_t>(i + 8)), -expected[i]);
  }
}

TEST(DType, E4m3EncodesToTheNearestCodeAndSaturates) {
  for (std::uint8_t code = 0; code < 0x7e; ++code) {
    const float low = e4m3_to_f32(code);
    const float high = e4m3_to_f32(static_cast<std::uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(f32_to_e4m3(low), code);
    EXPECT_EQ(f32_to_e4m3(-high), (code + 1) | 0x80);
    EXPECT_EQ(f32_to_e4m3(middle), (code & 1u) != 0 ? code + 1 : code);
    EXPECT_EQ(f32_to_e4m3(std::nextafterf(middle, 0.0f)), code);
  }
  EXPECT_EQ(f32_to_e4m3(1e9f), 0x7e);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(f32_to_e4m3(std::nanf("")))));
}

}  // namespace
}  // namespace flotilla::tensor
