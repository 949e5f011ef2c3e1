#include "flotilla/state/prefix_cache.h"

#include <gtest/gtest.h>

#include <random>

namespace flotilla::state {
namespace {

using tensor::kKvBlock;
using tensor::KvGeometry;

constexpr KvGeometry kGeometry{.num_kv_heads = 1, .head_dim = 1};
const std::size_t kPage = kv_page_bytes(kGeometry);

StateLayout full() { return {.layers = {PagedKv{kGeometry}, NoState{}, PagedKv{kGeometry}}}; }
StateLayout windowed() { return {.layers = {PagedKv{kGeometry}, WindowKv{kGeometry, 40}}}; }
StateLayout hybrid() { return {.layers = {PagedKv{kGeometry}, FixedState{4}}}; }

std::vector<TokenId> tokens_of(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random() % 1000));
  return tokens;
}

struct Bench {
  explicit Bench(StateLayout the_layout, PrefixCacheOptions options = {}, std::size_t pages = 4096)
      : layout(std::move(the_layout)), pool(pages * kPage), cache(options, layout, pool) {}

  PrefixChain chain(const std::vector<TokenId>& tokens, std::string_view tenant = "t") {
    PrefixChain out("model", tenant);
    out.extend(tokens);
    return out;
  }
  // Computes `tokens`, keeps them, and lets the sequence go.
  void put(const std::vector<TokenId>& tokens, std::string_view tenant = "t") {
    SequenceState state(layout, pool);
    const auto count = static_cast<std::int64_t>(tokens.size());
    ASSERT_TRUE(state.reserve(count).ok());
    state.append(count);
    keep(tokens, state, tenant);
  }
  void keep(const std::vector<TokenId>& tokens, const SequenceState& state,
            std::string_view tenant) {
    if (!cache.by_checkpoints()) {
      cache.insert_blocks(chain(tokens, tenant), state, state.num_positions());
      return;
    }
    const std::int64_t position =
        layout.has_fixed() ? state.num_positions() : state.num_positions() / kKvBlock * kKvBlock;
    auto checkpoint = state.checkpoint(position);
    ASSERT_TRUE(checkpoint.ok());
    cache.insert_checkpoint(chain(tokens, tenant), tokens, state, std::move(checkpoint).value());
  }
  PrefixCache::Match find(const std::vector<TokenId>& tokens, std::string_view tenant = "t") {
    return cache.find(chain(tokens, tenant), tokens, static_cast<std::int64_t>(tokens.size()));
  }
  void check() {
    cache.check_integrity();
    std::set<const float*> pages;
    cache.for_each_page([&](const PageRef& page) { pages.insert(page.data()); });
    pool.check_integrity(pages.size());
    EXPECT_EQ(pool.idle_bytes(), pool.used_bytes());  // no sequence is left
  }

  StateLayout layout;
  PagePool pool;
  PrefixCache cache;
};

TEST(PrefixChain, DependsOnModelTenantAndEveryToken) {
  auto tokens = tokens_of(1, 96);
  const auto key = [&](std::string_view model, std::string_view tenant, int blocks) {
    PrefixChain chain(model, tenant);
    chain.extend(tokens);
    return chain.key(blocks);
  };
  const PrefixKey base = key("m", "t", 3);
  EXPECT_EQ(key("m", "t", 3), base);
  EXPECT_NE(key("n", "t", 3), base);
  EXPECT_NE(key("m", "u", 3), base);
  EXPECT_NE(key("mt", "", 3), key("m", "t", 3));
  const PrefixKey second = key("m", "t", 2);
  tokens[70] += 1;
  EXPECT_NE(key("m", "t", 3), base);
  EXPECT_EQ(key("m", "t", 2), second);
  tokens[3] += 1;
  EXPECT_NE(key("m", "t", 2), second);
}

TEST(PrefixChain, GrowsAsTheTokensDo) {
  const auto tokens = tokens_of(2, 200);
  PrefixChain whole("m", "t");
  whole.extend(tokens);
  PrefixChain grown("m", "t");
  for (std::size_t n = 0; n <= tokens.size(); n += 7) {
    grown.extend(std::span(tokens).first(n));
    EXPECT_EQ(grown.num_blocks(), static_cast<int>(n / 32));
  }
  EXPECT_EQ(grown.key(6), whole.key(6));
  const std::span<const TokenId> tail = std::span(tokens).subspan(192, 5);
  EXPECT_NE(whole.tail_key(6, tail), whole.tail_key(6, tail.first(4)));
}

TEST(PrefixCache, FullAttentionIsTakenUpAtAnyBlock) {
  Bench bench(full());
  const auto tokens = tokens_of(1, 100);
  bench.put(tokens);
  for (const std::size_t shared : {0u, 1u, 31u, 32u, 33u, 64u, 95u, 96u, 100u}) {
    auto other = tokens;
    for (std::size_t i = shared; i < other.size(); ++i) other[i] += 1;
    EXPECT_EQ(bench.find(other).position, static_cast<std::int64_t>(shared / 32 * 32)) << shared;
  }
  bench.check();
}

TEST(PrefixCache, LayoutsWithWindowsAreTakenUpAtCheckpointsOnly) {
  Bench bench(windowed());
  const auto tokens = tokens_of(1, 140);
  bench.put(tokens);
  EXPECT_EQ(bench.find(tokens).position, 128);
  auto other = tokens;
  other[127] += 1;
  EXPECT_EQ(bench.find(other).position, 0);
  EXPECT_EQ(bench.find(other).known, 96);  // where a checkpoint would have helped
  bench.check();
}

TEST(PrefixCache, AFixedStateIsTakenUpAtItsExactPosition) {
  Bench bench(hybrid());
  const auto tokens = tokens_of(1, 77);
  bench.put(tokens);
  auto longer = tokens;
  longer.push_back(5);
  EXPECT_EQ(bench.find(longer).position, 77);
  auto shorter = tokens;
  shorter.pop_back();
  EXPECT_EQ(bench.find(shorter).position, 0);
  auto other = longer;
  other[76] += 1;
  EXPECT_EQ(bench.find(other).position, 0);
  bench.check();
}

TEST(PrefixCache, TenantsHaveNothingInCommon) {
  for (const StateLayout& layout : {full(), windowed(), hybrid()}) {
    Bench bench(layout);
    const auto tokens = tokens_of(1, 96);
    bench.put(tokens, "a");
    EXPECT_EQ(bench.find(tokens, "b").position, 0);
    EXPECT_EQ(bench.find(tokens, "b").known, 0);
    EXPECT_GT(bench.find(tokens, "a").position, 0);
  }
}

TEST(PrefixCache, TakesBackThePagesThatWereComputed) {
  for (const StateLayout& layout : {full(), windowed(), hybrid()}) {
    Bench bench(layout);
    const auto tokens = tokens_of(1, 96);
    SequenceState state(bench.layout, bench.pool);
    ASSERT_TRUE(state.reserve(96).ok());
    for (int block = 0; block < 3; ++block)
      state.views()[0].pages[block][7] = 1.0f + static_cast<float>(block);
    state.append(96);
    bench.keep(tokens, state, "t");
    state.release();
    SequenceState again(bench.layout, bench.pool);
    ASSERT_TRUE(again.restore(bench.cache.take(bench.find(tokens))).ok());
    EXPECT_EQ(again.num_positions(), 96);
    for (int block = 0; block < 3; ++block)
      EXPECT_EQ(again.views()[0].pages[block][7], 1.0f + static_cast<float>(block));
    EXPECT_TRUE(again.tail_is_exclusive());
    EXPECT_LT(bench.pool.idle_bytes(), bench.pool.used_bytes());
    again.release();
    bench.check();
  }
}

TEST(PrefixCache, EvictsWhatWasUsedLongestAgo) {
  Bench bench(full());
  for (unsigned seed = 0; seed < 4; ++seed) bench.put(tokens_of(seed, 32));
  bench.cache.take(bench.find(tokens_of(0, 32)));  // used again
  ASSERT_TRUE(bench.cache.evict_one());
  EXPECT_EQ(bench.find(tokens_of(1, 32)).position, 0);
  for (const unsigned seed : {0u, 2u, 3u}) EXPECT_EQ(bench.find(tokens_of(seed, 32)).position, 32);
  bench.check();
}

// Both hold one window of pages; one saves 64 tokens of work, the other 960.
TEST(PrefixCache, EvictsTheCheckpointThatSavesLess) {
  Bench bench(windowed());
  bench.put(tokens_of(1, 960));
  bench.put(tokens_of(2, 64));
  ASSERT_TRUE(bench.cache.evict_one());
  EXPECT_EQ(bench.find(tokens_of(1, 960)).position, 960);
  EXPECT_EQ(bench.find(tokens_of(2, 64)).position, 0);
}

TEST(PrefixCache, DoesNotEvictWhatASequenceUses) {
  Bench bench(full());
  bench.put(tokens_of(1, 64));
  bench.put(tokens_of(2, 64));
  SequenceState user(bench.layout, bench.pool);
  ASSERT_TRUE(user.restore(bench.cache.take(bench.find(tokens_of(1, 64)))).ok());
  while (bench.cache.evict_one()) {
  }
  EXPECT_EQ(bench.find(tokens_of(1, 64)).position, 64);
  EXPECT_EQ(bench.find(tokens_of(1, 64)).pinned_bytes, 4 * kPage);
  EXPECT_EQ(bench.find(tokens_of(2, 64)).position, 0);
  EXPECT_EQ(bench.pool.idle_bytes(), 0u);
}

TEST(PrefixCache, KeepsToItsBudgets) {
  Bench bench(windowed(), {.max_bytes = 60 * kPage, .max_checkpoint_bytes = 12 * kPage});
  for (unsigned seed = 0; seed < 40; ++seed) {
    bench.put(tokens_of(seed, 64 + 32 * (seed % 7)));
    EXPECT_LE(bench.cache.stats().bytes, 60 * kPage);
    EXPECT_LE(bench.cache.stats().checkpoint_bytes, 12 * kPage);
    bench.check();
  }
  EXPECT_GT(bench.cache.stats().evictions, 10u);
  EXPECT_GT(bench.cache.stats().num_checkpoints, 2u);
  Bench small(windowed(), {.max_checkpoint_bytes = kPage});
  small.put(tokens_of(1, 96));  // its window takes two pages
  EXPECT_EQ(small.cache.stats().bytes, 0u);
  small.check();
}

TEST(PrefixCache, AFloodOfOneTenantPushesOutItsOwn) {
  for (const StateLayout& layout : {full(), windowed(), hybrid()}) {
    Bench bench(layout, {.max_bytes = 120 * kPage, .max_checkpoint_bytes = 60 * kPage});
    bench.put(tokens_of(1, 64), "small");
    bench.put(tokens_of(2, 64), "other");
    for (unsigned seed = 10; seed < 200; ++seed) {
      bench.put(tokens_of(seed, 96), "flood");
      bench.check();
    }
    EXPECT_EQ(bench.find(tokens_of(1, 64), "small").position, 64);
    EXPECT_EQ(bench.find(tokens_of(2, 64), "other").position, 64);
    EXPECT_EQ(bench.find(tokens_of(199, 96), "flood").position, 96);
    // What nobody else claims is its own.
    EXPECT_GT(bench.cache.stats().bytes, 80 * kPage);
    // When all must go, all goes.
    while (bench.cache.evict_one()) {
    }
    EXPECT_EQ(bench.pool.used_bytes(), 0u);
    bench.check();
  }
}

TEST(PrefixCache, ATenantAboveItsShareLosesWhatIsWorthLeast) {
  Bench bench(full());
  for (unsigned seed = 0; seed < 4; ++seed) bench.put(tokens_of(seed, 64), "a");
  for (unsigned seed = 4; seed < 8; ++seed) bench.put(tokens_of(seed, 64), "b");
  // Both hold half, that is more than a quarter: the order is that of use.
  ASSERT_TRUE(bench.cache.evict_one());
  EXPECT_EQ(bench.find(tokens_of(0, 64), "a").position, 32);
  for (int i = 0; i < 8; ++i) bench.cache.evict_one();
  // The older ones of `a` have gone, down to its share; then `b` loses.
  EXPECT_GT(bench.find(tokens_of(3, 64), "a").position, 0);
  EXPECT_LT(bench.find(tokens_of(4, 64), "b").position, 64);
  bench.check();
}

TEST(PrefixCache, ForgetsEverythingThatSharesABlock) {
  for (const StateLayout& layout : {full(), windowed(), hybrid()}) {
    Bench bench(layout);
    const auto tokens = tokens_of(1, 128);
    auto branch = tokens;
    branch[100] += 1;
    bench.put(tokens);
    bench.put(branch);
    bench.put(tokens_of(2, 128));
    bench.cache.forget(bench.chain(branch));
    EXPECT_EQ(bench.find(tokens).known, 0);
    EXPECT_EQ(bench.find(branch).known, 0);
    EXPECT_EQ(bench.find(tokens_of(2, 128)).position, 128);
    bench.check();
    bench.cache.clear();
    bench.check();
    EXPECT_EQ(bench.pool.used_bytes(), 0u);
  }
}

// Random prompts from a few trees, random eviction; the books must add up after each.
TEST(PrefixCache, TheBooksAddUpWhateverHappens) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const std::vector<StateLayout> layouts = {full(), windowed(), hybrid()};
    Bench bench(layouts[seed % 3], {.max_bytes = 200 * kPage, .max_checkpoint_bytes = 40 * kPage});
    for (int i = 0; i < 120; ++i) {
      auto tokens = tokens_of(static_cast<unsigned>(random() % 3), 1 + random() % 300);
      if (random() % 2 == 0) tokens[random() % tokens.size()] += static_cast<TokenId>(random() % 3);
      switch (random() % 8) {
        case 0:
          bench.cache.evict_one();
          break;
        case 1:
          if (random() % 4 == 0) bench.cache.forget(bench.chain(tokens));
          break;
        case 2:
        case 3: {
          SequenceState state(bench.layout, bench.pool);
          const auto match = bench.find(tokens);
          const auto snapshot = bench.cache.take(match);
          if (snapshot.position > 0) {
            ASSERT_TRUE(state.restore(snapshot).ok());
            ASSERT_EQ(state.num_positions(), match.position);
            ASSERT_TRUE(state.tail_is_exclusive());
          }
          break;
        }
        default:
          bench.put(tokens);
      }
      bench.check();
    }
  }
}

}  // namespace
}  // namespace flotilla::state
