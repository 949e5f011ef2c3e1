#include "flotilla/models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/test_folder.h"

namespace flotilla::models {
namespace {
using checkpoint::TestFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

Result<const FamilyEntry*> find(std::string_view config) {
  const TestFolder folder;
  folder.write("config.json", config);
  folder.write("model.safetensors", TestFolder::safetensors("{}", ""));
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path());
  EXPECT_TRUE(checkpoint.ok());
  return find_family(*checkpoint);
}

TEST(Registry, FindsByModelTypeAndElseByArchitecture) {
  EXPECT_EQ((*find(R"({"model_type":"gemma4_text"})"))->model_type, "gemma4_text");
  EXPECT_EQ((*find(R"({"architectures":["Gemma4ForConditionalGeneration"]})"))->model_type,
            "gemma4");
}

TEST(Registry, AnUnknownModelIsRefusedWithWhatIsSupported) {
  const auto unknown =
      find(R"({"model_type":"llama","architectures":["Gemma4ForConditionalGeneration"]})");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(unknown.error().message,
              AllOf(HasSubstr("'llama'"), HasSubstr("gemma4"), HasSubstr("config.json")));
  EXPECT_FALSE(find("{}").ok());
  EXPECT_FALSE(find(R"({"model_type":3})").ok());
  EXPECT_FALSE(find(R"({"architectures":[7]})").ok());
}

}  // namespace
}  // namespace flotilla::models
