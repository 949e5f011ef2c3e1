#include "flotilla/backend/broken_backend.h"

#include <gtest/gtest.h>

#include <cstring>

#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::backend {
namespace {

class BrokenBackendTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Backend> make(int split_k_rows) {
    return std::move(make_cpu_backend({.num_threads = 2, .test_split_k_rows = split_k_rows}))
        .value();
  }
  static Tensor product(Backend& backend, const Matrix& weight, const Tensor& x) {
    Tensor out = backend.allocate({x.dim(0), weight.n()}, tensor::DType::kF32);
    backend.linear({.weight = &weight, .x = x, .out = out});
    return out;
  }
  static bool same_bits(const Tensor& a, const Tensor& b) {
    return std::memcmp(a.bytes(), b.bytes(), b.num_bytes()) == 0;
  }
};

TEST_F(BrokenBackendTest, ARowDependsOnItsNeighboursFromTheGivenNumberOn) {
  const auto sound = make(0), broken = make(3);
  EXPECT_TRUE(sound->capabilities().keeps_bit_contract);
  EXPECT_FALSE(broken->capabilities().keeps_bit_contract);
  const StoredMatrix stored = fixed_matrix({WeightFormat::kAffine, 4, 64}, 200, 512, 1);
  const auto a = std::move(sound->prepare(stored)).value();
  const auto b = std::move(broken->prepare(stored)).value();
  const Tensor x = fixed_activations({5, 512}, 2);
  EXPECT_TRUE(same_bits(product(*broken, *b, x.rows(0, 2)), product(*sound, *a, x.rows(0, 2))));
  for (const std::int64_t rows : {3, 5}) {
    const Tensor wrong = product(*broken, *b, x.rows(0, rows));
    const Tensor right = product(*sound, *a, x.rows(0, rows));
    EXPECT_FALSE(same_bits(wrong, right)) << rows;
    // Only rounding differs: what no test of accuracy would find.
    for (std::int64_t i = 0; i < wrong.shape().num_elements(); ++i) {
      EXPECT_NEAR(wrong.data<float>()[i], right.data<float>()[i], 1e-4f) << i;
    }
  }
}

TEST_F(BrokenBackendTest, NothingBreaksUnlessAsked) {
  EXPECT_EQ(CpuOptions{}.test_split_k_rows, 0);
  EXPECT_EQ(make(0)->capabilities().device.find("broken"), std::string::npos);
  EXPECT_NE(make(1)->capabilities().device.find("broken"), std::string::npos);
}

}  // namespace
}  // namespace flotilla::backend
