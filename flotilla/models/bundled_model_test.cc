// The bundled model against its reference cases: exact greedy completions, close log-probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "flotilla/json/json.h"
#include "flotilla/models/model_test_util.h"

namespace flotilla::models {
namespace {
namespace bj = boost::json;

std::vector<TokenId> ids_of(const bj::value& list) {
  std::vector<TokenId> ids;
  for (const bj::value& id : list.as_array()) ids.push_back(static_cast<TokenId>(id.as_int64()));
  return ids;
}

bool has_picture(const bj::value& item) {
  return json::find(item, "image") != nullptr || json::find(item, "picture") != nullptr;
}

double log_probability(std::span<const float> logits, TokenId id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z) - largest);
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - largest - std::log(sum);
}

TEST(BundledModel, CompletesEveryRobustTextCaseExactly) {
  auto model = TestModel::load(FLOTILLA_SOURCE_DIR "/models/flotilla-tiny");
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto cases = json::parse_file(FLOTILLA_SOURCE_DIR "/tests/tiny-model/cases.json");
  ASSERT_TRUE(cases.ok());
  int num_compared = 0;
  int num_with_logprobs = 0;
  for (const bj::value& item : cases->at("cases").as_array()) {
    if (!item.at("robust").as_bool() || has_picture(item)) continue;
    SCOPED_TRACE(bj::serialize(item.at("id")));
    ++num_compared;
    const std::vector<TokenId> expected = ids_of(item.at("completion_ids"));
    const bj::value* logprobs = json::find(item, "logprobs");
    std::vector<TokenId> ids;
    double worst = 0;
    (*model)->generate(
        ids_of(item.at("prompt_ids")), expected.size(), [&](std::span<const float> logits) {
          if (logprobs != nullptr) {
            for (const bj::value& top : logprobs->at(ids.size()).at("top").as_array()) {
              const auto id = static_cast<TokenId>(top.at(0).as_int64());
              worst = std::max(
                  worst, std::fabs(log_probability(logits, id) - top.at(1).to_number<double>()));
            }
          }
          ids.push_back(static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) -
                                             logits.begin()));
          return ids.back() == expected[ids.size() - 1] ? ids.back() : -1;
        });
    EXPECT_EQ(ids, expected);
    if (logprobs == nullptr) continue;
    ++num_with_logprobs;
    EXPECT_LT(worst, 1e-3);
    RecordProperty("worst_logprob_difference", std::to_string(worst));
  }
  EXPECT_GE(num_compared, 40);
  EXPECT_GE(num_with_logprobs, 5);
  std::printf("%d cases compared, %d with log-probabilities\n", num_compared, num_with_logprobs);
}

}  // namespace
}  // namespace flotilla::models
