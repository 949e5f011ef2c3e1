#include "flotilla/checkpoint/generation_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "flotilla/checkpoint/test_folder.h"
#include "flotilla/json/json.h"

namespace flotilla::checkpoint {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<GenerationDefaults> read(const TestFolder& folder, std::string_view config) {
  return read_generation_defaults(folder.path(), json::parse(config).value());
}

// B58: whichever file names an end token, generation stops there.
TEST(EosIds, AreTheUnionOfEverySource) {
  const TestFolder folder;
  folder.write("generation_config.json", R"({"eos_token_id":[1,106,50],"temperature":0.7})");
  folder.write(
      "tokenizer_config.json",
      R"({"eos_token":"<eos>","added_tokens_decoder":{"7":{"content":"<eos>"},"8":{"content":"<bos>"}}})");
  const auto defaults = read(folder, R"({"eos_token_id":1,"text_config":{"eos_token_id":[2,1]}})");
  ASSERT_TRUE(defaults.ok()) << defaults.error().message;
  EXPECT_THAT(defaults->eos_ids, ElementsAre(1, 2, 7, 50, 106));
  EXPECT_EQ(defaults->temperature, 0.7);
  EXPECT_EQ(defaults->top_p, std::nullopt);
}

TEST(EosIds, EachSourceAloneIsEnough) {
  const TestFolder none;
  EXPECT_THAT(read(none, "{}")->eos_ids, IsEmpty());
  EXPECT_THAT(read(none, R"({"eos_token_id":null})")->eos_ids, IsEmpty());
  EXPECT_THAT(read(none, R"({"eos_token_id":5})")->eos_ids, ElementsAre(5));
  EXPECT_THAT(read(none, R"({"eos_token_id":[5,6]})")->eos_ids, ElementsAre(5, 6));
  EXPECT_THAT(read(none, R"({"text_config":{"eos_token_id":106}})")->eos_ids, ElementsAre(106));
  none.write(
      "tokenizer_config.json",
      R"({"eos_token":{"content":"<e>"},"added_tokens_decoder":{"3":{"content":"<e>"},"x":{"content":"<e>"}}})");
  EXPECT_THAT(read(none, "{}")->eos_ids, ElementsAre(3));
}

TEST(EosIds, NonsenseIsAnErrorThatNamesTheFile) {
  const TestFolder folder;
  for (const std::string_view value :
       {"\"1\"", "-1", "1.5", "[1,null]", "[[1]]", "3000000000", "true"}) {
    const auto defaults = read(folder, R"({"eos_token_id":)" + std::string(value) + "}");
    ASSERT_FALSE(defaults.ok()) << value;
    EXPECT_THAT(defaults.error().message, HasSubstr("config.json"));
  }
  folder.write("generation_config.json", "{");
  EXPECT_THAT(read(folder, "{}").error().message, HasSubstr("generation_config.json"));
}

TEST(GenerationDefaults, ReadsTheSamplingFields) {
  const TestFolder folder;
  folder.write(
      "generation_config.json",
      R"({"temperature":1.0,"top_k":64,"top_p":0.95,"min_p":0.1,"repetition_penalty":1.1,"do_sample":true})");
  const auto defaults = read(folder, "{}");
  ASSERT_TRUE(defaults.ok());
  EXPECT_EQ(defaults->temperature, 1.0);
  EXPECT_EQ(defaults->top_k, 64);
  EXPECT_EQ(defaults->top_p, 0.95);
  EXPECT_EQ(defaults->min_p, 0.1);
  EXPECT_EQ(defaults->repetition_penalty, 1.1);
  folder.write("generation_config.json", R"({"temperature":1.0,"do_sample":false})");
  EXPECT_EQ(read(folder, "{}")->temperature, 0.0);
  folder.write("generation_config.json", R"({"top_p":"x"})");
  EXPECT_THAT(read(folder, "{}").error().message, HasSubstr("generation_config.json"));
}

}  // namespace
}  // namespace flotilla::checkpoint
