#include "flotilla/backend/cpu/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "flotilla/backend/cpu/kernels.h"
#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::backend {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

double ulps(float got, double want) {
  const auto rounded = static_cast<float>(want);
  if (got == rounded) return 0.0;
  const double ulp = static_cast<double>(std::nextafterf(std::fabs(rounded), kInf)) -
                     static_cast<double>(std::fabs(rounded));
  return std::fabs(static_cast<double>(got) - want) / ulp;
}

// Floats spread over all exponents between 2^low and 2^high, of both signs.
std::vector<float> spread(int low, int high, int count) {
  FixedRandom random(5);
  std::vector<float> out;
  for (int i = 0; i < count; ++i) {
    const int exponent =
        low + static_cast<int>(random.below(static_cast<std::uint32_t>(high - low)));
    const float mantissa = 1.0f + static_cast<float>(random.below(1u << 23)) * 0x1p-23f;
    out.push_back(std::ldexp(mantissa, exponent) * (random.below(2) == 0 ? 1.0f : -1.0f));
  }
  return out;
}

TEST(Math, ExpIsWithinOneUlp) {
  double worst = 0;
  for (const float x : spread(-24, 7, 200000)) {
    if (x > 88.7f || x < -87.0f) continue;
    worst = std::max(worst, ulps(exp_f32(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_EQ(exp_f32(89.0f), kInf);
  EXPECT_LT(exp_f32(88.7f), kInf);
  EXPECT_EQ(exp_f32(-kInf), 0.0f);
  EXPECT_EQ(exp_f32(-104.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exp_f32(std::nanf(""))));
  // Subnormal results, to the unit of the last place.
  for (float x = -87.4f; x > -103.0f; x -= 0.37f) {
    EXPECT_NEAR(static_cast<double>(exp_f32(x)) / 0x1p-149,
                std::exp(static_cast<double>(x)) / 0x1p-149,
                1.0 + 2e-7 * std::exp(static_cast<double>(x)) / 0x1p-149);
  }
}

TEST(Math, TanhIsWithinTwoUlp) {
  double worst = 0;
  for (const float x : spread(-20, 5, 200000)) {
    worst = std::max(worst, ulps(tanh_f32(x), std::tanh(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(tanh_f32(kInf), 1.0f);
  EXPECT_EQ(tanh_f32(-kInf), -1.0f);
  EXPECT_EQ(tanh_f32(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(tanh_f32(std::nanf(""))));
}

TEST(Math, LogIsWithinTwoUlp) {
  double worst = 0;
  for (float x : spread(-126, 127, 200000)) {
    x = std::fabs(x);
    worst = std::max(worst, ulps(log_f32(x), std::log(static_cast<double>(x))));
  }
  for (float x = 0.5f; x < 2.0f; x += 0.0001f) {
    worst = std::max(worst, ulps(log_f32(x), std::log(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(log_f32(1.0f), 0.0f);
  EXPECT_EQ(log_f32(0.0f), -kInf);
  EXPECT_EQ(log_f32(kInf), kInf);
  EXPECT_TRUE(std::isnan(log_f32(-1.0f)));
  EXPECT_TRUE(std::isnan(log_f32(std::nanf(""))));
  EXPECT_NEAR(log_f32(0x1p-140f), -140 * std::log(2.0), 1e-5);
}

TEST(Math, SineAndCosineHoldForEveryAngleOfALongContext) {
  double worst = 0;
  FixedRandom random(9);
  for (int i = 0; i < 300000; ++i) {
    const float frequency = std::ldexp(1.0f + static_cast<float>(random.below(1u << 23)) * 0x1p-23f,
                                       -static_cast<int>(random.below(20)) - 1);
    const float angle = static_cast<float>(random.below(262144)) * frequency;
    const SinCos t = sin_cos(angle);
    worst = std::max(worst,
                     std::fabs(static_cast<double>(t.sine) - std::sin(static_cast<double>(angle))));
    worst = std::max(
        worst, std::fabs(static_cast<double>(t.cosine) - std::cos(static_cast<double>(angle))));
  }
  // Half a unit of the last place of 1 is 6e-8 / 2.
  EXPECT_LE(worst, 3.0e-8);
  EXPECT_EQ(sin_cos(0.0f).sine, 0.0f);
  EXPECT_EQ(sin_cos(0.0f).cosine, 1.0f);
  EXPECT_NEAR(sin_cos(262143.0f).sine, std::sin(262143.0), 3e-8);
  EXPECT_NEAR(sin_cos(-1.0f).sine, std::sin(-1.0), 3e-8);
}

TEST(Math, AllTargetsGiveTheSameBits) {
  std::vector<float> x = spread(-149, 127, 20003);
  x.insert(x.end(), {0.0f, -0.0f, kInf, -kInf});
  const CpuKernels& reference = *find_cpu_kernels(CpuTarget::kScalar);
  for (const CpuTarget target : {CpuTarget::kAvx2, CpuTarget::kAvx512}) {
    const CpuKernels* kernels = find_cpu_kernels(target);
    if (kernels == nullptr) continue;
    std::vector<float> a(x.size()), b(x.size());
    const auto compare = [&](auto fn, const char* name) {
      (reference.*fn)(x.data(), a.data(), x.size());
      (kernels->*fn)(x.data(), b.data(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(a[i]) && std::isnan(b[i])) continue;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
            << name << "(" << x[i] << ") " << kernels->name;
      }
    };
    compare(&CpuKernels::exp, "exp");
    compare(&CpuKernels::tanh, "tanh");
    compare(&CpuKernels::log, "log");
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{16},
                                std::size_t{17}, std::size_t{1000}}) {
      EXPECT_EQ(reference.max(x.data(), n), kernels->max(x.data(), n));
      const Tensor y = fixed_activations({1024}, 3);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(reference.sum(y.data<float>(), n)),
                std::bit_cast<std::uint32_t>(kernels->sum(y.data<float>(), n)));
    }
  }
}

TEST(Math, ArraysMayBeWrittenInPlaceAndNothingElseIsTouched) {
  std::vector<float> x(40, 1.0f);
  const std::span<float> part(x.data() + 3, 21);
  exp_array(part, part);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i], i >= 3 && i < 24 ? exp_f32(1.0f) : 1.0f);
  }
  EXPECT_EQ(sum_array({}), 0.0f);
  EXPECT_EQ(max_array({}), -kInf);
}

}  // namespace
}  // namespace flotilla::backend
