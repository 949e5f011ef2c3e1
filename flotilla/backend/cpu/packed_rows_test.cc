#include "flotilla/backend/cpu/packed_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "flotilla/backend/cpu/thread_pool.h"
#include "flotilla/backend/fixed_inputs.h"

namespace flotilla::backend {
namespace {

class PackedRowsTest : public ::testing::Test {
 protected:
  // The element and the sum of a group, found by their place in the layout.
  static float at(const PackedRows& x, int row, int k) {
    int p = 0;
    while (row >= x.panel_begin(p) + x.panel_rows(p)) ++p;
    const int k0 = k / kBlockK * kBlockK;
    return x.block(p, k0)[(k - k0) * x.panel_rows(p) + row - x.panel_begin(p)];
  }
  static float sum(const PackedRows& x, int row, int group) {
    int p = 0;
    while (row >= x.panel_begin(p) + x.panel_rows(p)) ++p;
    const int k0 = group * x.group() / kBlockK * kBlockK;
    return x.block_sums(p, k0)[(group - k0 / x.group()) * x.panel_rows(p) + row - x.panel_begin(p)];
  }
  ThreadPool pool_{2};
  PackedRows packed_;
};

TEST_F(PackedRowsTest, KeepsEveryValueAndSumsGroupsInOrder) {
  for (const int m : {1, 2, 6, 7, 13, 64}) {
    for (const int k : {64, 320, 512, 517}) {
      const Tensor x = fixed_activations({m, k}, 3);
      packed_.pack(x.data<float>(), m, k, 64, RowScaling::kNone, pool_);
      ASSERT_EQ(packed_.k(), (k + 63) / 64 * 64);
      for (int r = 0; r < m; ++r) {
        float total = 0;
        for (int i = 0; i < packed_.k(); ++i) {
          const float v = i < k ? x.data<float>()[r * k + i] : 0.0f;
          ASSERT_EQ(at(packed_, r, i), v) << m << " rows, row " << r << ", k " << i;
          total = (i % 64 == 0 ? 0.0f : total) + v;
          if (i % 64 == 63) {
            ASSERT_EQ(sum(packed_, r, i / 64), total) << r;
          }
        }
      }
    }
  }
}

TEST_F(PackedRowsTest, ScaledByPlaceKeepsTheSums) {
  for (const int m : {1, 5, 9}) {
    const Tensor x = fixed_activations({m, 192}, 4);
    x.data<float>()[1] = std::numeric_limits<float>::denorm_min();
    packed_.pack(x.data<float>(), m, 192, 64, RowScaling::kByPlace, pool_);
    ASSERT_EQ(packed_.scaling(), RowScaling::kByPlace);
    for (int r = 0; r < m; ++r) {
      float total = 0;
      for (int i = 0; i < 192; ++i) {
        const float v = x.data<float>()[r * 192 + i];
        ASSERT_EQ(at(packed_, r, i), std::ldexp(v, 4 * (3 - i % 4))) << r << ", k " << i;
        total = (i % 64 == 0 ? 0.0f : total) + v;
        if (i % 64 == 63) {
          ASSERT_EQ(sum(packed_, r, i / 64), total);
        }
      }
    }
  }
}

TEST_F(PackedRowsTest, WhatCannotBeScaledExactlyIsNotScaled) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float v : {kMaxPlaceable, -kMaxPlaceable, 1e38f, inf, -inf, std::nanf("")}) {
    for (const int m : {1, 3, 8}) {
      std::vector<float> x(static_cast<std::size_t>(m) * 128, 1.0f);
      x.back() = v;
      packed_.pack(x.data(), m, 128, 64, RowScaling::kByPlace, pool_);
      EXPECT_EQ(packed_.scaling(), RowScaling::kNone) << v;
      EXPECT_EQ(at(packed_, 0, 0), 1.0f);
      x.back() = std::nextafter(kMaxPlaceable, 0.0f);
      packed_.pack(x.data(), m, 128, 64, RowScaling::kByPlace, pool_);
      EXPECT_EQ(packed_.scaling(), RowScaling::kByPlace);
      EXPECT_TRUE(std::isfinite(at(packed_, m - 1, 124)));
    }
  }
}

}  // namespace
}  // namespace flotilla::backend
