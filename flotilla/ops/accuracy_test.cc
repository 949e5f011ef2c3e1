// The operations against double precision: the bits are fixed elsewhere, here they must also be
// right.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "flotilla/backend/cpu/definition.h"
#include "flotilla/backend/fixed_inputs.h"
#include "flotilla/ops/ops.h"

namespace flotilla::ops {
namespace {

using namespace flotilla::backend;  // NOLINT: a test of that module

std::unique_ptr<Backend> best() { return std::move(make_cpu_backend({.num_threads = 2})).value(); }

class LinearAccuracy : public ::testing::TestWithParam<MatrixKind> {};

TEST_P(LinearAccuracy, RoundingNoiseIsThatOfFloat32) {
  const auto backend = best();
  constexpr std::int64_t kN = 48, kK = 2048, kRows = 3;
  const StoredMatrix stored = fixed_matrix(GetParam(), kN, kK, 11);
  const Tensor x = fixed_activations({kRows, kK}, 12);
  const Tensor y = linear(*backend, *std::move(backend->prepare(stored)).value(), x);
  const int group = stored_group(stored);
  double error = 0, magnitude = 0;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t n = 0; n < kN; ++n) {
      double sum = 0, squares = 0;
      for (std::int64_t k = 0; k < kK; ++k) {
        const double w =
            static_cast<double>(stored_code(stored, n, k)) * stored_scale(stored, n, k / group) +
            stored_bias(stored, n, k / group);
        const double p = w * x.data<float>()[r * kK + k];
        sum += p;
        squares += p * p;
      }
      const double d = y.data<float>()[r * kN + n] - sum;
      error += d * d;
      magnitude += squares;
    }
  }
  EXPECT_LT(std::sqrt(error / magnitude), 1.5e-6);
  EXPECT_GT(magnitude, 0.0);
}

INSTANTIATE_TEST_SUITE_P(Formats, LinearAccuracy, ::testing::ValuesIn(all_matrix_kinds()),
                         [](const auto& test) { return matrix_kind_name(test.param); });

TEST(Accuracy, GeluIsWithinAFewUnitsOfTheLastPlace) {
  const auto backend = best();
  constexpr std::int64_t kCount = 40001;
  Tensor gate(tensor::make_host_buffer(kCount * 4), 0, {1, kCount}, tensor::DType::kF32);
  Tensor up(tensor::make_host_buffer(kCount * 4), 0, {1, kCount}, tensor::DType::kF32);
  for (std::int64_t i = 0; i < kCount; ++i) {
    gate.data<float>()[i] = static_cast<float>(i - 20000) * 0.001f;
    up.data<float>()[i] = 1.0f;
  }
  const Tensor out = gelu_mul(*backend, gate, up);  // over gate
  for (std::int64_t i = 0; i < kCount; ++i) {
    const double x = static_cast<double>(static_cast<float>(i - 20000) * 0.001f);
    const double u = std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    const double want = 0.5 * x * (1.0 + std::tanh(u));
    ASSERT_NEAR(out.data<float>()[i], want, 1e-6 * std::fabs(x) + 1e-30) << x;
  }
}

TEST(Accuracy, GeluOfExtremesIsZeroOrTheInput) {
  const auto backend = best();
  Tensor gate(tensor::make_host_buffer(16), 0, {4}, tensor::DType::kF32);
  const float values[4] = {-1e30f, 1e30f, -50.0f, 50.0f};
  std::memcpy(gate.bytes(), values, sizeof values);
  Tensor up(tensor::make_host_buffer(16), 0, {4}, tensor::DType::kF32);
  for (int i = 0; i < 4; ++i) up.data<float>()[i] = 1.0f;
  gelu_mul(*backend, gate, up);
  EXPECT_EQ(gate.data<float>()[0], 0.0f);
  EXPECT_EQ(gate.data<float>()[1], 1e30f);
  EXPECT_EQ(gate.data<float>()[2], 0.0f);
  EXPECT_EQ(gate.data<float>()[3], 50.0f);
}

TEST(Accuracy, NormsFollowTheFormula) {
  const auto backend = best();
  const Tensor x = fixed_activations({4, 5376}, 1), weight = fixed_activations({5376}, 2);
  const Tensor y = rms_norm(*backend, x, weight, 1e-6f);
  for (std::int64_t r = 0; r < 4; ++r) {
    double mean = 0;
    for (std::int64_t i = 0; i < 5376; ++i)
      mean += std::pow(x.data<float>()[r * 5376 + i], 2.0) / 5376;
    for (std::int64_t i = 0; i < 5376; ++i) {
      const double want =
          x.data<float>()[r * 5376 + i] / std::sqrt(mean + 1e-6) * weight.data<float>()[i];
      ASSERT_NEAR(y.data<float>()[r * 5376 + i], want, 4e-7 * std::fabs(want));
    }
  }
}

TEST(Accuracy, RopeKeepsLengthsAndAngles) {
  const auto backend = best();
  const std::vector<float> frequencies = {1.0f, 0.1f, 0.003f, 1e-5f};
  const std::vector<std::int32_t> positions = {0, 7, 4096, 262143};
  const Tensor x = fixed_activations({4, 2, 8}, 1), y = fixed_activations({4, 2, 8}, 1);
  rope(*backend, y, positions, frequencies);
  for (std::size_t t = 0; t < 4; ++t) {
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t i = 0; i < 4; ++i) {
        // The angle itself is a float32 product; its sine is not allowed further error.
        const double angle = static_cast<double>(static_cast<float>(positions[t]) * frequencies[i]);
        const float *in = x.data<float>() + (t * 2 + h) * 8,
                    *out = y.data<float>() + (t * 2 + h) * 8;
        const double size = std::fabs(in[i]) + std::fabs(in[i + 4]) + 1e-3;
        EXPECT_NEAR(out[i], in[i] * std::cos(angle) - in[i + 4] * std::sin(angle), 2e-7 * size);
        EXPECT_NEAR(out[i + 4], in[i + 4] * std::cos(angle) + in[i] * std::sin(angle), 2e-7 * size);
      }
    }
  }
}

TEST(Accuracy, AttentionIsASoftmaxOverTheVisibleKeys) {
  const auto backend = best();
  const KvGeometry geometry{.num_kv_heads = 2, .head_dim = 64};
  for (const int window : {0, 70}) {
    for (const float scale : {0.125f, 1.0f, 8.0f}) {  // the last one makes a single key dominate
      const FixedKv kv(geometry, 0, 10, 3);
      const KvRow r{0, 3, 290, kv.view()};
      const Tensor q = fixed_activations({3, 4, 64}, 9);
      const Tensor out = attention(*backend, q, geometry, {&r, 1}, window, scale);
      for (int t = 0; t < 3; ++t) {
        for (int h = 0; h < 4; ++h) {
          const float* query = q.data<float>() + (t * 4 + h) * 64;
          const int position = 290 + t, lowest = window > 0 ? position - window + 1 : 0;
          double sum = 0, max = -1e300;
          std::vector<double> scores, value(64, 0.0);
          for (int j = lowest; j <= position; ++j) {
            const float* page = kv.view().pages[j / 32] + tensor::kv_k_offset(geometry, h / 2);
            double dot = 0;
            for (int d = 0; d < 64; ++d)
              dot += static_cast<double>(query[d]) * page[d * 32 + j % 32];
            scores.push_back(dot * scale);
            max = std::max(max, dot * scale);
          }
          for (int j = lowest; j <= position; ++j) {
            const float* page = kv.view().pages[j / 32] + tensor::kv_v_offset(geometry, h / 2);
            const double p = std::exp(scores[static_cast<std::size_t>(j - lowest)] - max);
            sum += p;
            for (std::size_t d = 0; d < 64; ++d)
              value[d] += p * page[static_cast<std::size_t>(j % 32) * 64 + d];
          }
          for (std::size_t d = 0; d < 64; ++d) {
            // Scores of some 100 carry errors of 1e-5, which the exponential passes on.
            ASSERT_NEAR(out.data<float>()[static_cast<std::size_t>((t * 4 + h) * 64) + d],
                        value[d] / sum, 3e-6 * (1.0 + 8.0 * scale));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace flotilla::ops
