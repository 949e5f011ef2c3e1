#include "flotilla/state/sequence_state.h"

#include <gtest/gtest.h>

#include <random>

namespace flotilla::state {
namespace {

using tensor::kKvBlock;
using tensor::KvGeometry;
using tensor::KvView;

constexpr KvGeometry kFull{.num_kv_heads = 1, .head_dim = 4};
constexpr KvGeometry kSliding{.num_kv_heads = 2, .head_dim = 2};

StateLayout layout_with_window(int window) {
  return {.layers = {PagedKv{kFull}, WindowKv{kSliding, window}, NoState{}}};
}

// Writes recognisable keys and values at [begin, end), as a model would, into layers 0 and 1.
void write(SequenceState& state, std::int64_t begin, std::int64_t end, float salt = 0) {
  for (int layer = 0; layer < 2; ++layer) {
    const KvView view = state.views()[static_cast<std::size_t>(layer)];
    const KvGeometry g = layer == 0 ? kFull : kSliding;
    for (std::int64_t p = begin; p < end; ++p) {
      float* page = view.pages[p / kKvBlock - view.first_block];
      for (int h = 0; h < g.num_kv_heads; ++h) {
        for (int d = 0; d < g.head_dim; ++d) {
          page[kv_k_offset(g, h) + static_cast<std::size_t>(d * kKvBlock + p % kKvBlock)] =
              static_cast<float>(p * 100 + h * 10 + d) + salt;
          page[kv_v_offset(g, h) + static_cast<std::size_t>(p % kKvBlock * g.head_dim + d)] =
              -static_cast<float>(p * 100 + h * 10 + d) - salt;
        }
      }
    }
  }
}

float key_at(const SequenceState& state, std::size_t layer, std::int64_t p) {
  const KvView view = state.views()[layer];
  const KvGeometry g = layer == 0 ? kFull : kSliding;
  return view.pages[p / kKvBlock - view.first_block]
                   [kv_k_offset(g, 0) + static_cast<std::size_t>(p % kKvBlock)];
}

void grow(SequenceState& state, std::int64_t count) {
  const std::int64_t begin = state.num_positions();
  ASSERT_TRUE(state.reserve(begin + count).ok());
  write(state, begin, begin + count);
  state.append(count);
}

TEST(SequenceState, ReservesWholePagesInEveryLayer) {
  const StateLayout layout = layout_with_window(16);
  PagePool pool(1 << 20);
  SequenceState state(layout, pool);
  EXPECT_EQ(state.bytes_to_reserve(33), 2 * (kv_page_bytes(kFull) + kv_page_bytes(kSliding)));
  ASSERT_TRUE(state.reserve(33).ok());
  EXPECT_EQ(state.num_pages(), 4u);
  EXPECT_EQ(state.views()[0].num_blocks, 2);
  EXPECT_EQ(state.views()[2].num_blocks, 0);
  EXPECT_EQ(state.bytes_to_reserve(64), 0u);
  state.release();
  pool.check_integrity(0);
}

TEST(SequenceState, ReservesAllLayersOrNothing) {
  const StateLayout layout = layout_with_window(16);
  PagePool pool(kv_page_bytes(kFull) * 2 + kv_page_bytes(kSliding));
  SequenceState state(layout, pool);
  ASSERT_TRUE(state.reserve(32).ok());
  const Status refused = state.reserve(64);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(state.num_pages(), 2u);
  EXPECT_EQ(state.views()[0].num_blocks, 1);
  pool.check_integrity(2);
}

TEST(SequenceState, AWindowKeepsEveryBlockThatAQueryCanSee) {
  for (const int window : {1, 2, 16, 31, 32, 33, 64, 65}) {
    const StateLayout layout = layout_with_window(window);
    PagePool pool(1 << 22);
    SequenceState state(layout, pool);
    for (std::int64_t n = 1; n < 300; ++n) {
      grow(state, 1);
      const KvView view = state.views()[1];
      const std::int64_t first_seen = std::max<std::int64_t>(0, n - window + 1);
      for (std::int64_t p = first_seen; p < n; ++p) {
        ASSERT_GE(p / kKvBlock, view.first_block);
        ASSERT_LT(p / kKvBlock, view.first_block + view.num_blocks);
        ASSERT_EQ(key_at(state, 1, p), static_cast<float>(p * 100));
      }
      // and nothing but what a query at the start of this block could see
      const std::int64_t start = n / kKvBlock * kKvBlock;
      ASSERT_EQ(view.first_block, std::max<std::int64_t>(0, start - window + 1) / kKvBlock);
      ASSERT_TRUE(state.checkpoint(start).ok()) << "window " << window << " length " << n;
      ASSERT_LE(state.bytes(), layout.bytes(n)) << "window " << window << " length " << n;
    }
    EXPECT_EQ(key_at(state, 0, 5), 500.0f);  // full attention keeps everything
  }
}

TEST(StateLayout, BytesAreMonotonicAndBoundWhatIsUsed) {
  std::mt19937 random(5);
  for (const int window : {1, 7, 32, 100}) {
    const StateLayout layout = layout_with_window(window);
    for (const std::int64_t chunk : {1, 5, 32, 77}) {
      PagePool pool(1 << 22);
      SequenceState state(layout, pool);
      std::size_t last = 0;
      while (state.num_positions() < 400) {
        const std::int64_t n =
            1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(chunk));
        ASSERT_TRUE(state.reserve(state.num_positions() + n).ok());
        EXPECT_LE(state.bytes(), layout.peak_bytes(state.num_positions() + n, chunk));
        state.append(n);
        EXPECT_GE(layout.bytes(state.num_positions()), last);
        last = layout.bytes(state.num_positions());
      }
    }
  }
}

TEST(StateLayout, MaxLengthIsTheLongestThatFits) {
  const StateLayout layout = layout_with_window(40);
  for (std::size_t budget = 0; budget < 40000; budget += 777) {
    const std::int64_t n = layout.max_length(budget, 16, 500);
    EXPECT_LE(layout.peak_bytes(n, 16), budget);
    if (n < 500) {
      EXPECT_GT(layout.peak_bytes(n + 1, 16), budget);
    }
  }
  EXPECT_EQ(layout.max_length(std::size_t{1} << 40, 16, 500), 500);
}

TEST(StateSnapshot, RestoresTheStateAsItWas) {
  for (const std::int64_t position : {1, 31, 32, 33, 64, 90, 100}) {
    const StateLayout layout = layout_with_window(24);
    PagePool pool(1 << 20);
    SequenceState state(layout, pool);
    grow(state, position);
    auto snapshot = state.snapshot(position);
    ASSERT_TRUE(snapshot.ok());
    grow(state, 77);  // goes on, in other words: does not disturb the snapshot
    SequenceState other(layout, pool);
    ASSERT_TRUE(other.restore(*snapshot).ok());
    EXPECT_EQ(other.num_positions(), position);
    for (std::int64_t p = 0; p < position; ++p) {
      ASSERT_EQ(key_at(other, 0, p), static_cast<float>(p * 100));
      if (p > position - 24) {
        ASSERT_EQ(key_at(other, 1, p), static_cast<float>(p * 100));
      }
    }
    // Two continuations of one snapshot do not see each other.
    ASSERT_TRUE(other.reserve(position + 40).ok());
    write(other, position, position + 40, 0.5f);
    other.append(40);
    SequenceState third(layout, pool);
    ASSERT_TRUE(third.restore(*snapshot).ok());
    grow(third, 40);
    EXPECT_EQ(key_at(third, 0, position + 3), static_cast<float>((position + 3) * 100));
    EXPECT_EQ(key_at(other, 0, position + 3), static_cast<float>((position + 3) * 100) + 0.5f);
    EXPECT_EQ(key_at(state, 0, position + 3), static_cast<float>((position + 3) * 100));
  }
}

TEST(StateSnapshot, SharesWholePagesAndCopiesTheCutOne) {
  const StateLayout layout{.layers = {PagedKv{kFull}}};
  PagePool pool(1 << 20);
  SequenceState state(layout, pool);
  ASSERT_TRUE(state.reserve(100).ok());
  state.append(100);
  auto snapshot = state.snapshot(70);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->num_pages(), 3u);
  pool.check_integrity(4 + 1);  // the third block was copied
  state.release();
  pool.check_integrity(3);
  snapshot = StateSnapshot{};
  pool.check_integrity(0);
}

TEST(StateSnapshot, IsRefusedWhereAWindowHasMovedOn) {
  const StateLayout layout = layout_with_window(8);
  PagePool pool(1 << 20);
  SequenceState state(layout, pool);
  grow(state, 200);
  const auto refused = state.snapshot(100);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(state.snapshot(199).ok());
  EXPECT_TRUE(state.snapshot(0).ok());
}

TEST(StateSnapshot, ARestoreWithoutRoomLeavesTheStateEmpty) {
  const StateLayout layout{.layers = {PagedKv{kFull}}};
  PagePool pool(kv_page_bytes(kFull) * 2);
  SequenceState state(layout, pool);
  ASSERT_TRUE(state.reserve(10).ok());
  state.append(10);
  auto snapshot = state.snapshot(10);
  ASSERT_TRUE(snapshot.ok());
  SequenceState other(layout, pool);
  EXPECT_FALSE(other.restore(*snapshot).ok());
  EXPECT_EQ(other.num_positions(), 0);
  pool.check_integrity(2);
}

// A layout of three kinds; layer 1 is fixed and holds 3 values.
StateLayout hybrid_layout() { return {.layers = {PagedKv{kFull}, FixedState{3}, NoState{}}}; }

void step_fixed(SequenceState& state, float value) {
  ASSERT_TRUE(state.reserve(state.num_positions() + 1).ok());
  state.views()[1].pages[0][2] = value;
  state.append(1);
}

TEST(FixedState, IsOnePageWhateverTheLength) {
  const StateLayout layout = hybrid_layout();
  PagePool pool(1 << 20);
  SequenceState state(layout, pool);
  ASSERT_TRUE(state.reserve(10).ok());
  EXPECT_EQ(state.views()[1].num_blocks, 1);
  EXPECT_EQ(state.views()[1].pages[0][0], 0.0f);
  EXPECT_EQ(state.bytes(), kv_page_bytes(kFull) + 12);
  EXPECT_EQ(state.bytes_to_reserve(64), kv_page_bytes(kFull));
  EXPECT_EQ(layout.bytes(33) - layout.bytes(32), kv_page_bytes(kFull));
  EXPECT_TRUE(layout.has_fixed());
  EXPECT_FALSE(layout_with_window(4).has_fixed());
}

TEST(FixedState, IsSavedAndRestoredAtItsOwnPositionOnly) {
  const StateLayout layout = hybrid_layout();
  PagePool pool(1 << 20);
  SequenceState state(layout, pool);
  for (int i = 0; i < 40; ++i) step_fixed(state, static_cast<float>(i));
  EXPECT_EQ(state.snapshot(39).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(state.snapshot(32).error().code, ErrorCode::kInvalidArgument);
  auto saved = state.snapshot(40);
  ASSERT_TRUE(saved.ok());
  step_fixed(state, 99);
  SequenceState first(layout, pool);
  SequenceState second(layout, pool);
  ASSERT_TRUE(first.restore(*saved).ok());
  ASSERT_TRUE(second.restore(*saved).ok());
  step_fixed(first, 7);
  EXPECT_EQ(first.views()[1].pages[0][2], 7.0f);
  EXPECT_EQ(second.views()[1].pages[0][2], 39.0f);  // neither sees the other, nor the origin
  EXPECT_TRUE(second.tail_is_exclusive());
}

TEST(StateSnapshot, ACheckpointHoldsNoWholeBlocksOfFullAttention) {
  const StateLayout layout = layout_with_window(40);
  PagePool pool(1 << 20);
  SequenceState state(layout, pool);
  grow(state, 128);
  const auto checkpoint = state.checkpoint(128);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->layers[0].pages.size(), 0u);
  EXPECT_EQ(checkpoint->layers[1].first_block, 2);
  EXPECT_EQ(checkpoint->layers[1].pages.size(), 2u);
  EXPECT_EQ(pool.idle_bytes(), 0u);
  const std::size_t window_bytes = checkpoint->bytes();
  state.release();
  EXPECT_EQ(pool.idle_bytes(), window_bytes);  // only a cache's references are left
  pool.check_integrity(2);
}

}  // namespace
}  // namespace flotilla::state
