#include "flotilla/state/state_cost.h"

#include <gtest/gtest.h>

namespace flotilla::state {
namespace {

constexpr tensor::KvGeometry kGeometry{.num_kv_heads = 2, .head_dim = 4};
const std::uint64_t kPerToken = kv_page_bytes(kGeometry) / tensor::kKvBlock;

TEST(StateCost, IsAnUpperBoundWithinABlockPerLayer) {
  for (const int window : {1, 31, 32, 33, 100, 1024}) {
    const StateLayout layout{.layers = {PagedKv{kGeometry}, WindowKv{kGeometry, window},
                                        FixedState{5}, NoState{}, WindowKv{kGeometry, window}}};
    for (const std::int64_t chunk : {1, 32, 128, 200}) {
      const StateCost cost = state_cost(layout, chunk);
      for (std::int64_t n = 0; n < 3000; n += 1 + n / 40) {
        const std::size_t exact = layout.peak_bytes(n, chunk);
        ASSERT_GE(cost.bytes(n), exact) << window << " " << chunk << " " << n;
        ASSERT_LE(cost.bytes(n), exact + 3 * kv_page_bytes(kGeometry)) << window << " " << n;
      }
    }
  }
}

TEST(StateCost, LayersOfOneWindowAreOneClass) {
  const StateLayout layout{.layers = {WindowKv{kGeometry, 65}, PagedKv{kGeometry},
                                      WindowKv{kGeometry, 65}, FixedState{10}}};
  const StateCost cost = state_cost(layout, 1);
  // 64 positions before the block of the next one, and that block.
  const std::vector<StateCostClass> expected = {{2 * kPerToken, 96}, {kPerToken, 0}};
  EXPECT_EQ(cost.classes, expected);
  EXPECT_EQ(cost.fixed_bytes, 40 + 3 * 31 * kPerToken);
}

TEST(StateCost, TooManyCapsAreTakenTogetherAtTheGreater) {
  StateLayout layout;
  for (int i = 1; i <= 40; ++i) layout.layers.push_back(WindowKv{kGeometry, i * 64});
  const StateCost cost = state_cost(layout, 32, 16);
  EXPECT_EQ(cost.classes.size(), 16u);
  for (std::int64_t n = 1; n < 4000; n += 37) {
    EXPECT_GE(cost.bytes(n), layout.peak_bytes(n, 32));
  }
}

}  // namespace
}  // namespace flotilla::state
