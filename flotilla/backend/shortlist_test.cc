#include "flotilla/backend/shortlist.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "flotilla/backend/backend.h"

namespace flotilla::backend {
namespace {

std::vector<TokenId> ids(const Shortlist& list) {
  std::vector<TokenId> out;
  for (const Candidate& c : list.first) out.push_back(c.id);
  return out;
}
using Ids = std::vector<TokenId>;

TEST(Shortlist, IsInOrderOfValueThenId) {
  const std::vector<float> logits = {1, 5, -3, 5, 0.5f, 5, 4};
  EXPECT_EQ(ids(define_shortlist(logits, {.count = 5})), (Ids{1, 3, 5, 6, 0}));
  EXPECT_EQ(ids(define_shortlist(logits, {.count = 2})), (Ids{1, 3}));
  EXPECT_EQ(define_shortlist(logits, {.count = 100}).first.size(), logits.size());
}

TEST(Shortlist, EditsComeInTheOrderOfTheSampler) {
  const std::vector<float> logits = {2, -2, 1, 0};
  const std::vector<LogitEdit> edits = {{.id = 0, .bias = 1, .repetition = 2, .penalty = 0.25f},
                                        {.id = 1, .bias = 1, .repetition = 2, .penalty = 0.25f},
                                        {.id = 2, .taken_out = 1}};
  const Shortlist list = define_shortlist(logits, {.count = 4, .edits = edits});
  ASSERT_EQ(ids(list), (Ids{0, 3, 1}));
  EXPECT_EQ(list.first[0].value, 1.25f);   // (2 + 1) / 2 - 0.25
  EXPECT_EQ(list.first[2].value, -2.25f);  // (-2 + 1) * 2 - 0.25
}

TEST(Shortlist, MasksLeaveOutWhatTheyDoNotName) {
  std::vector<float> logits(70, 0.0f);
  logits[33] = 3, logits[69] = 9;
  const std::vector<std::uint32_t> allowed = {0x80000001u, 0x2u};  // 0, 31, 33; none from 64 on
  EXPECT_EQ(ids(define_shortlist(logits, {.count = 9, .allowed = allowed})), (Ids{33, 0, 31}));
  const std::vector<std::uint32_t> none = {0, 0, 0};
  EXPECT_TRUE(define_shortlist(logits, {.count = 9, .allowed = none}).first.empty());
}

TEST(Shortlist, OneWrongLogitSpoilsTheRowAlsoWhereItIsTakenOut) {
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> logits = {1, wrong, 2};
    const std::vector<LogitEdit> edits = {{.id = 1, .taken_out = 1}};
    const std::vector<std::uint32_t> allowed = {5};
    const Shortlist list = define_shortlist(logits, {.edits = edits, .allowed = allowed});
    EXPECT_FALSE(list.is_finite);
    EXPECT_TRUE(list.first.empty());
  }
}

TEST(Shortlist, BackendsServeTheRowsThatAreNamed) {
  const auto backend = make_cpu_backend({.num_threads = 1}).value();
  const Tensor x = backend->allocate({3, 500}, tensor::DType::kF32);
  std::mt19937 random(3);
  for (std::int64_t i = 0; i < 1500; ++i) {
    x.data<float>()[i] = static_cast<float>(random() % 50);
  }
  const std::vector<ShortlistRow> rows = {{.row = 2, .count = 9}, {.row = 0, .count = 70}};
  const std::vector<Shortlist> lists = backend->shortlist({.x = x, .rows = rows});
  ASSERT_EQ(lists.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::span<const float> row(x.data<float>() + 500 * rows[i].row, 500);
    EXPECT_EQ(ids(lists[i]), ids(define_shortlist(row, rows[i])));
    EXPECT_EQ(lists[i].first.size(), static_cast<std::size_t>(rows[i].count));
  }
}

}  // namespace
}  // namespace flotilla::backend
