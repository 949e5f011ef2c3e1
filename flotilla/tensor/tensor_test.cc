#include "flotilla/tensor/tensor.h"

#include <gtest/gtest.h>

#include "flotilla/tensor/kv_layout.h"

namespace flotilla::tensor {
namespace {

TEST(Shape, CountsAndPrints) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.num_elements(), 24);
  EXPECT_EQ(s.to_string(), "[2, 3, 4]");
  EXPECT_EQ(Shape{}.num_elements(), 1);
  EXPECT_EQ((Shape{0, 5}).num_elements(), 0);
  EXPECT_EQ(s, (Shape{2, 3, 4}));
  EXPECT_NE(s, (Shape{2, 12}));
}

TEST(ShapeDeathTest, RefusesNegativeAndOverflowingSizes) {
  EXPECT_DEATH(Shape({2, -1}), "negative");
  EXPECT_DEATH(Shape({std::int64_t{1} << 40, std::int64_t{1} << 40}), "too large");
}

TEST(Buffer, IsAlignedForVectorsAtEverySize) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{5} << 20}) {
    const auto buffer = make_host_buffer(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_EQ(buffer->size(), bytes);
    if (bytes > 0) buffer->data()[bytes - 1] = std::byte{1};
  }
}

TEST(Tensor, RowsAndReshapeShareTheBuffer) {
  const Tensor t(make_host_buffer(6 * sizeof(float)), 0, {3, 2}, DType::kF32);
  for (int i = 0; i < 6; ++i) t.data<float>()[i] = static_cast<float>(i);
  const Tensor middle = t.rows(1, 2);
  EXPECT_EQ(middle.shape(), (Shape{1, 2}));
  EXPECT_EQ(middle.data<float>()[0], 2.0f);
  const Tensor flat = t.reshape({6});
  EXPECT_EQ(flat.dim(0), 6);
  EXPECT_EQ(flat.bytes(), t.bytes());
  EXPECT_EQ(t.buffer(), middle.buffer());
  EXPECT_TRUE(Tensor().empty());
  EXPECT_EQ(t.rows(3, 3).dim(0), 0);
}

TEST(TensorDeathTest, RefusesViewsOutsideTheirStorage) {
  const auto buffer = make_host_buffer(16);
  EXPECT_DEATH(Tensor(buffer, 4, {4}, DType::kF32), "beyond its buffer");
  EXPECT_DEATH(Tensor(buffer, 100, {0}, DType::kF32), "beyond its buffer");
  const Tensor t(buffer, 0, {4}, DType::kF32);
  EXPECT_DEATH((void)t.rows(2, 5), "outside");
  EXPECT_DEATH((void)t.reshape({5}), "number of elements");
}

TEST(KvLayout, HeadsFollowEachOtherWithKeysBeforeValues) {
  const KvGeometry g{.num_kv_heads = 3, .head_dim = 8};
  EXPECT_EQ(kv_page_floats(g), 2u * 3 * 8 * kKvBlock);
  EXPECT_EQ(kv_k_offset(g, 0), 0u);
  EXPECT_EQ(kv_v_offset(g, 0), 8u * kKvBlock);
  EXPECT_EQ(kv_k_offset(g, 1), 2u * 8 * kKvBlock);
  EXPECT_EQ(kv_v_offset(g, 2) + 8u * kKvBlock, kv_page_floats(g));
}

}  // namespace
}  // namespace flotilla::tensor
