// What the operations refuse: a mismatch is our bug, and it must not reach a kernel.
#include "flotilla/ops/ops.h"

#include <gtest/gtest.h>

#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::ops {
namespace {

using backend::fixed_activations;
using backend::FixedKv;

class OpsDeathTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ =
      std::move(backend::make_cpu_backend({.num_threads = 1})).value();
  std::unique_ptr<Matrix> matrix_ =
      std::move(backend_->prepare(backend::fixed_matrix({backend::WeightFormat::kBF16}, 8, 64, 1)))
          .value();
};

TEST_F(OpsDeathTest, TokenIdsMustBeInTheTable) {
  const TokenId ids[] = {3, 8};
  EXPECT_DEATH((void)embedding(*backend_, *matrix_, ids, 1.0f),
               "token id 8 outside of a table of 8");
  const TokenId negative[] = {-1};
  EXPECT_DEATH((void)embedding(*backend_, *matrix_, negative, 1.0f), "token id -1");
  EXPECT_EQ(embedding(*backend_, *matrix_, {}, 1.0f).dim(0), 0);
}

TEST_F(OpsDeathTest, LinearsNeedMatchingInputs) {
  EXPECT_DEATH((void)linear(*backend_, *matrix_, fixed_activations({2, 65}, 1)),
               "input of 65 against a weight of 64");
  EXPECT_DEATH((void)linear(*backend_, *matrix_, fixed_activations({64}, 1)), "rank 2");
  const Tensor halves(tensor::make_host_buffer(128), 0, {1, 64}, tensor::DType::kF16);
  EXPECT_DEATH((void)linear(*backend_, *matrix_, halves), "float32");
  EXPECT_DEATH((void)linear(*backend_, *matrix_, {}), "empty");
}

TEST_F(OpsDeathTest, NormsNeedWeightsOfTheirSize) {
  const Tensor x = fixed_activations({2, 64}, 1);
  EXPECT_DEATH((void)rms_norm(*backend_, x, fixed_activations({63}, 1), 1e-6f), "differs");
  EXPECT_DEATH(norm_add(*backend_, x, fixed_activations({64}, 1), 1e-6f, 1.0f,
                        fixed_activations({3, 64}, 1)),
               "residual");
}

TEST_F(OpsDeathTest, ActivationsNeedEqualShapesAndAPositiveCap) {
  EXPECT_DEATH(
      (void)gelu_mul(*backend_, fixed_activations({2, 8}, 1), fixed_activations({2, 9}, 1)),
      "gelu_mul");
  EXPECT_DEATH(softcap(*backend_, fixed_activations({2, 8}, 1), 0.0f), "positive");
}

TEST_F(OpsDeathTest, RopeNeedsAPositionPerTokenAndAFrequencyPerPair) {
  const Tensor x = fixed_activations({2, 1, 8}, 1);
  const std::vector<float> four(4, 1.0f), three(3, 1.0f);
  const std::vector<std::int32_t> two = {0, 1}, one = {0}, bad = {0, -1};
  EXPECT_DEATH(rope(*backend_, x, one, four), "position");
  EXPECT_DEATH(rope(*backend_, x, two, three), "frequency");
  EXPECT_DEATH(rope(*backend_, x, bad, four), "out of range");
}

TEST_F(OpsDeathTest, AttentionNeedsPagesForWhatItReads) {
  const backend::KvGeometry geometry{.num_kv_heads = 1, .head_dim = 16};
  const Tensor q = fixed_activations({2, 2, 16}, 1);
  const FixedKv kv(geometry, 2, 2, 1);  // positions 64 to 127
  const auto run = [&](backend::KvRow row, int window) {
    return attention(*backend_, q, geometry, {&row, 1}, window, 1.0f);
  };
  EXPECT_EQ(run({0, 2, 100, kv.view()}, 30).shape(), q.shape());
  EXPECT_DEATH((void)run({0, 2, 100, kv.view()}, 0), "do not hold positions 0 to 101");
  EXPECT_DEATH((void)run({0, 2, 100, kv.view()}, 40), "do not hold positions 61 to 101");
  EXPECT_DEATH((void)run({0, 2, 127, kv.view()}, 10), "do not hold");
  EXPECT_DEATH((void)run({1, 2, 100, kv.view()}, 10), "follow each other");
  EXPECT_DEATH((void)run({0, 1, 100, kv.view()}, 10), "without a row");
  EXPECT_DEATH((void)attention(*backend_, fixed_activations({2, 2, 24}, 1), geometry, {}, 0, 1.0f),
               "queries");
  const backend::KvGeometry odd{.num_kv_heads = 1, .head_dim = 12};
  EXPECT_DEATH((void)attention(*backend_, fixed_activations({2, 2, 12}, 1), odd, {}, 0, 1.0f),
               "multiple of 8");
}

}  // namespace
}  // namespace flotilla::ops
