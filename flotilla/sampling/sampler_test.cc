#include "flotilla/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "flotilla/sampling/exact_math.h"
#include "flotilla/sampling/logprobs.h"
#include "flotilla/sampling/philox.h"

namespace flotilla::sampling {
namespace {

std::vector<float> random_row(std::mt19937& random, std::size_t size, float spread = 4.0f) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> row(size);
  for (float& v : row) v = normal(random);
  return row;
}

TokenId pick(const SamplingParams& params, std::span<const float> row, std::uint64_t index = 0) {
  SamplerScratch scratch;
  Sampler sampler(params, {});
  for (std::uint64_t i = 0; i < index; ++i) sampler.accept(0);
  return *sampler.sample(row, {}, scratch);
}

// The documented definition with a full sort and no shortcuts.
TokenId by_definition(const SamplingParams& p, std::span<const float> row, std::uint64_t index) {
  std::vector<TokenId> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto value = [&](TokenId id) { return row[static_cast<std::size_t>(id)]; };
  std::sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
    return value(a) != value(b) ? value(a) > value(b) : a < b;
  });
  if (p.temperature < 1e-6) return ids[0];
  if (p.top_k > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(p.top_k)));
  std::vector<double> w;
  for (const TokenId id : ids) {
    const double gap = (value(id) - static_cast<double>(value(ids[0]))) / p.temperature;
    if (gap < -32) break;
    w.push_back(exact_exp(gap));
  }
  if (p.top_p < 1) {
    const double all = std::accumulate(w.begin(), w.end(), 0.0);
    double sum = 0;
    std::size_t n = 0;
    while (n < w.size() && sum < p.top_p * all) sum += w[n++];
    w.resize(n);
  }
  std::erase_if(w, [&](double x) { return x < p.min_p; });
  const double point = uniform(p.seed, p.choice, index) * std::accumulate(w.begin(), w.end(), 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    sum += w[i];
    if (sum > point) return ids[i];
  }
  return ids[w.size() - 1];
}

TEST(Sampler, EqualsItsDefinition) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    auto row = random_row(random, 2 + random() % 3000);
    if (round % 3 == 0) {
      for (float& v : row) v = std::round(v);  // many ties
    }
    if (round % 5 == 0) std::sort(row.begin(), row.end());  // every entry beats those before it
    SamplingParams p;
    p.temperature = std::array{0.0, 1e-30, 0.1, 0.7, 1.0, 2.0, 1e9}[random() % 7];
    p.top_k = std::array{0, 0, 1, 5, 64, 5000}[random() % 6];
    p.top_p = std::array{1.0, 0.95, 0.5, 1e-9}[random() % 4];
    p.min_p = std::array{0.0, 0.0, 0.05, 1.0}[random() % 4];
    p.seed = random();
    p.choice = static_cast<std::uint32_t>(random() % 3);
    const std::uint64_t index = random() % 4;
    ASSERT_EQ(pick(p, row, index), by_definition(p, row, index)) << "round " << round;
  }
}

// What a device does of the work, and the rest here.
TEST(Sampler, AShortlistOfTheEditedRowGivesTheSameToken) {
  std::mt19937 random(12);
  int compared = 0;
  for (int round = 0; round < 4000; ++round) {
    auto row = random_row(random, 2 + random() % 1500);
    const auto size = row.size();
    if (round % 3 == 0) {
      for (float& v : row) v = std::round(v);
    }
    if (round % 41 == 0) row[random() % size] = std::numeric_limits<float>::quiet_NaN();
    const auto any = [&] { return static_cast<TokenId>(random() % size); };
    SamplingParams p;
    p.temperature = std::array{0.0, 0.02, 0.1, 0.7, 1.0, 2.0, 1e9}[random() % 7];
    p.top_k = std::array{0, 1, 5, 64, 256, 257}[random() % 6];
    p.top_p = std::array{1.0, 0.95, 0.5}[random() % 3];
    p.min_p = std::array{0.0, 0.05}[random() % 2];
    p.repetition_penalty = std::array{1.0, 1.0, 1.3, 0.7}[random() % 4];
    p.frequency_penalty = std::array{0.0, 0.37, -0.1}[random() % 3];
    p.presence_penalty = std::array{0.0, 0.11}[random() % 2];
    p.seed = random();
    for (auto n = random() % 4; n > 0; --n) p.logit_bias.emplace_back(any(), 0.1 + random() % 9);
    std::vector<TokenId> prompt(random() % 40), banned(random() % 3);
    for (TokenId& id : prompt) id = any();
    for (TokenId& id : banned) id = any();
    std::vector<std::uint32_t> allowed;
    if (round % 4 == 0) {
      for (std::size_t i = 0; i < (size + 31) / 32; ++i) {
        allowed.push_back(static_cast<std::uint32_t>(round % 8 == 0 ? random() & random() : 0));
      }
    }
    Sampler sampler(p, prompt);
    for (auto n = random() % 30; n > 0; --n) sampler.accept(any());
    SamplerScratch scratch;
    const Result<TokenId> whole = sampler.sample(row, banned, scratch, allowed);
    const int count = sampler.num_deciding();
    if (count == 0) continue;
    ++compared;
    const auto edits = sampler.edits(banned);
    const auto list = backend::define_shortlist(
        row, {.row = 0, .count = count, .edits = edits, .allowed = allowed});
    const Result<TokenId> few = sampler.sample_first(list, !allowed.empty(), scratch);
    ASSERT_EQ(few.ok(), whole.ok()) << "round " << round;
    if (few.ok()) {
      ASSERT_EQ(*few, *whole) << "round " << round;
    } else {
      ASSERT_EQ(few.error().code, whole.error().code);
    }
  }
  EXPECT_GT(compared, 2000);
}

TEST(Sampler, SaysWhenAShortlistWouldNotDo) {
  EXPECT_EQ(Sampler({.temperature = 0}, {}).num_deciding(), 1);
  EXPECT_EQ(Sampler({.top_k = 256}, {}).num_deciding(), 256);
  EXPECT_EQ(Sampler({.top_k = 257}, {}).num_deciding(), 0);
  EXPECT_EQ(Sampler({.top_p = 0.9}, {}).num_deciding(), 0);
  // Two biases of a token are two additions.
  EXPECT_EQ(Sampler({.top_k = 5, .logit_bias = {{3, 1.0}, {4, 1.0}}}, {}).num_deciding(), 5);
  EXPECT_EQ(Sampler({.top_k = 5, .logit_bias = {{3, 1.0}, {3, 0.1}}}, {}).num_deciding(), 0);
  std::vector<TokenId> long_prompt(20'000);
  std::iota(long_prompt.begin(), long_prompt.end(), 0);
  EXPECT_EQ(Sampler({.top_k = 5, .repetition_penalty = 1.1}, long_prompt).num_deciding(), 0);
}

TEST(Sampler, GreedyTakesTheLowerIdOfATie) {
  const std::vector<float> row{1, 3, 2, 3};
  EXPECT_EQ(pick({.temperature = 0}, row), 1);
  EXPECT_EQ(pick({.temperature = 1e-30}, row), 1);
  EXPECT_EQ(pick({.temperature = 5, .top_k = 1}, row), 1);
}

TEST(Sampler, FollowsTheDistribution) {
  const std::vector<float> row{0.0f, std::log(2.0f), std::log(3.0f), std::log(4.0f)};
  std::map<TokenId, int> counts;
  SamplingParams p;
  for (std::uint64_t seed = 0; seed < 40000; ++seed) {
    p.seed = seed;
    ++counts[pick(p, row)];
  }
  for (int id = 0; id < 4; ++id) EXPECT_NEAR(counts[id] / 40000.0, (id + 1) / 10.0, 0.01);
}

TEST(Sampler, SeedsGiveTheSameTokensOnEveryMachine) {
  std::mt19937 random(77);  // its sequence is fixed by the standard
  std::vector<float> row(1000);
  for (float& v : row) v = static_cast<float>(random() % 4096) / 256.0f - 8.0f;
  const auto tokens = [&](SamplingParams p) {
    std::vector<TokenId> out;
    for (std::uint64_t i = 0; i < 8; ++i) out.push_back(pick(p, row, i));
    return out;
  };
  const std::vector<TokenId> plain = tokens({.seed = 42});
  const std::vector<TokenId> cut =
      tokens({.temperature = 0.8, .top_p = 0.9, .top_k = 50, .seed = 42});
  EXPECT_EQ(plain, (std::vector<TokenId>{188, 356, 215, 933, 82, 118, 344, 151}));
  EXPECT_EQ(cut, (std::vector<TokenId>{424, 320, 226, 401, 948, 948, 333, 859}));
}

TEST(Sampler, ChoicesOfOneSeedDifferAndRepeat) {
  std::mt19937 random(5);
  const auto row = random_row(random, 500, 1.0f);
  const auto run = [&](std::uint32_t choice) {
    std::vector<TokenId> out;
    for (std::uint64_t i = 0; i < 20; ++i)
      out.push_back(pick({.seed = 7, .choice = choice}, row, i));
    return out;
  };
  EXPECT_NE(run(0), run(1));
  EXPECT_NE(run(1), run(2));
  EXPECT_EQ(run(2), run(2));
}

TEST(Sampler, NeighboursDoNotDisturbASeed) {
  std::mt19937 random(6);
  const auto row = random_row(random, 300, 1.0f);
  SamplerScratch shared;
  Sampler alone({.seed = 42}, {});
  Sampler with_others({.seed = 42}, {});
  Sampler other({.top_k = 3, .repetition_penalty = 1.3, .seed = 9}, std::vector<TokenId>{1, 2});
  for (int i = 0; i < 50; ++i) {
    SamplerScratch own;
    const TokenId expected = *alone.sample(row, {}, own);
    other.accept(*other.sample(random_row(random, 300), {}, shared));
    const TokenId token = *with_others.sample(row, {}, shared);
    ASSERT_EQ(token, expected);
    alone.accept(token);
    with_others.accept(token);
  }
}

TEST(Sampler, PenaltiesAreAsOpenAiAndCtrlDefineThem) {
  SamplerScratch scratch;
  const std::vector<float> row{2.0f, 1.9f, -1.0f, -1.1f};
  {
    // The prompt counts for repetition: 2.0 / 1.25 < 1.9.
    Sampler sampler({.temperature = 0, .repetition_penalty = 1.25}, std::vector<TokenId>{0, 0, 0});
    EXPECT_EQ(*sampler.sample(row, {}, scratch), 1);
    // A negative logit moves away from zero.
    Sampler negative({.temperature = 0, .repetition_penalty = 1.25}, std::vector<TokenId>{0, 1, 2});
    EXPECT_EQ(*negative.sample(std::vector<float>{-2, -2, -1, -1.1f}, {}, scratch), 3);
  }
  {
    // Presence and frequency: only what was generated.
    Sampler sampler({.temperature = 0, .presence_penalty = 0.2}, std::vector<TokenId>{0});
    EXPECT_EQ(*sampler.sample(row, {}, scratch), 0);
    sampler.accept(0);
    EXPECT_EQ(*sampler.sample(row, {}, scratch), 1);
    sampler.accept(1);
    EXPECT_EQ(*sampler.sample(row, {}, scratch), 0);
    Sampler frequency({.temperature = 0, .frequency_penalty = 0.06}, {});
    frequency.accept(0);
    EXPECT_EQ(*frequency.sample(row, {}, scratch), 0);
    frequency.accept(0);
    EXPECT_EQ(*frequency.sample(row, {}, scratch), 1);
  }
}

TEST(Sampler, BiasAndBansSteer) {
  SamplerScratch scratch;
  const std::vector<float> row{1, 2, 3};
  Sampler biased({.temperature = 0, .logit_bias = {{0, 2.5}}}, {});
  EXPECT_EQ(*biased.sample(row, {}, scratch), 0);
  Sampler plain({.temperature = 0}, {});
  EXPECT_EQ(*plain.sample(row, std::vector<TokenId>{2}, scratch), 1);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Sampler hot({.temperature = 100, .seed = seed}, {});
    EXPECT_NE(*hot.sample(row, std::vector<TokenId>{1}, scratch), 1);
  }
  EXPECT_FALSE(plain.sample(row, std::vector<TokenId>{0, 1, 2}, scratch).ok());
}

TEST(Sampler, ARowThatIsNotFiniteIsAModelFault) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  SamplerScratch scratch;
  for (const float bad : {nan, inf, -inf}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{63}, std::size_t{99}}) {
      std::vector<float> row(100, 1.0f);
      row[at] = bad;
      for (const double temperature : {0.0, 1.0}) {
        const auto token = Sampler({.temperature = temperature}, {}).sample(row, {}, scratch);
        ASSERT_FALSE(token.ok());
        EXPECT_EQ(token.error().code, ErrorCode::kModelFault);
        EXPECT_NE(token.error().message.find("at token " + std::to_string(at)), std::string::npos);
      }
    }
  }
}

// With a mask the result is that of a row in which everything else is -infinity.
TEST(Sampler, TakesOnlyAllowedTokens) {
  std::mt19937 random(3);
  SamplerScratch scratch;
  for (int round = 0; round < 500; ++round) {
    const auto row = random_row(random, 1 + random() % 200);
    std::vector<std::uint32_t> allowed((row.size() + 31) / 32, 0);
    std::vector<std::pair<float, TokenId>> order;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (random() % 4 != 0) continue;
      allowed[i / 32] |= 1u << (i % 32);
      order.emplace_back(-row[i], static_cast<TokenId>(i));
    }
    SamplingParams p;
    p.temperature = round % 2 == 0 ? 0.0 : 1.0;
    p.seed = random();
    const auto token = Sampler(p, {}).sample(row, {}, scratch, allowed);
    if (order.empty()) {
      ASSERT_FALSE(token.ok());
      EXPECT_EQ(token.error().code, ErrorCode::kInternal);
      continue;
    }
    ASSERT_TRUE(token.ok());
    const auto at = static_cast<std::size_t>(*token);
    EXPECT_TRUE((allowed[at / 32] >> (at % 32) & 1u) != 0);
    if (p.temperature == 0) {
      EXPECT_EQ(*token, std::min_element(order.begin(), order.end())->second);
    }
  }
  // A mask of everything changes nothing.
  const auto row = random_row(random, 100);
  const std::vector<std::uint32_t> all(4, 0xFFFFFFFF);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SamplingParams p;
    p.seed = seed;
    EXPECT_EQ(*Sampler(p, {}).sample(row, {}, scratch, all),
              *Sampler(p, {}).sample(row, {}, scratch));
  }
  // Bits that are missing are not allowed.
  const std::vector<std::uint32_t> few(1, 0xFFFFFFFF);
  std::vector<float> rising(100);
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<float>(i);
  SamplingParams greedy;
  greedy.temperature = 0;
  EXPECT_EQ(*Sampler(greedy, {}).sample(rising, {}, scratch, few), 31);
}

TEST(Logprobs, AreOfTheRawDistributionAndContainTheChosen) {
  SamplerScratch scratch;
  const std::vector<float> row{std::log(1.0f), std::log(2.0f), std::log(5.0f), std::log(2.0f)};
  const RowLogprobs out = row_logprobs(row, 0, 3, scratch);
  EXPECT_NEAR(out.chosen, std::log(0.1), 1e-6);
  ASSERT_EQ(out.top.size(), 3u);
  EXPECT_EQ(out.top[0].first, 2);
  EXPECT_EQ(out.top[1].first, 1);  // ties to the lower id
  EXPECT_EQ(out.top[2].first, 3);
  EXPECT_NEAR(out.top[0].second, std::log(0.5), 1e-6);
}

TEST(Logprobs, ImpossibleTokensAreFloored) {
  SamplerScratch scratch;
  const std::vector<float> row{0, -3e38f, 1};
  const RowLogprobs out = row_logprobs(row, 1, 20, scratch);
  EXPECT_EQ(out.chosen, -9999.0);
  ASSERT_EQ(out.top.size(), 3u);  // the vocabulary is smaller than what was asked for
  EXPECT_EQ(out.top[2].second, -9999.0);
  for (const auto& [id, logprob] : out.top) EXPECT_TRUE(std::isfinite(logprob));
}

}  // namespace
}  // namespace flotilla::sampling
