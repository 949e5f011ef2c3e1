#include "flotilla/models/gemma4/gemma4_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/test_folder.h"
#include "flotilla/json/json.h"

namespace flotilla::models::gemma4 {
namespace {
using checkpoint::TestFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

boost::json::value base_config() {
  return json::parse_file(FLOTILLA_SOURCE_DIR "/tests/reference/gemma4-dense/config.json").value();
}
boost::json::object& text(boost::json::value& config) {
  return config.as_object()["text_config"].as_object();
}

Result<Config> read(const boost::json::value& config) {
  const TestFolder folder;
  folder.write("config.json", boost::json::serialize(config));
  folder.write("model.safetensors", TestFolder::safetensors("{}", ""));
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path());
  EXPECT_TRUE(checkpoint.ok());
  return read_config(*checkpoint, "language_model.model.");
}

// Reference libraries disagree about what an absent field means, so none is guessed.
TEST(Gemma4Config, EveryStructuralFieldIsRequired) {
  ASSERT_TRUE(read(base_config()).ok());
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "num_global_key_value_heads", "head_dim",
        "global_head_dim", "attention_k_eq_v", "sliding_window", "layer_types",
        "max_position_embeddings", "rms_norm_eps", "final_logit_softcapping",
        "num_kv_shared_layers", "hidden_size_per_layer_input", "enable_moe_block",
        "rope_parameters"}) {
    auto config = base_config();
    text(config).erase(key);
    const auto result = read(config);
    ASSERT_FALSE(result.ok()) << key;
    EXPECT_THAT(result.error().message, AllOf(HasSubstr("config.json"), HasSubstr(key)));
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << key;
  }
}

struct Edit {
  const char* key;
  boost::json::value value;
  ErrorCode code;
};

TEST(Gemma4Config, WhatIsNotImplementedOrImpossibleNamesTheField) {
  using boost::json::value;
  const std::vector<Edit> edits = {{"enable_moe_block", value(true), ErrorCode::kUnsupported},
                                   {"attention_bias", value(true), ErrorCode::kUnsupported},
                                   {"hidden_activation", value("silu"), ErrorCode::kUnsupported},
                                   {"num_kv_shared_layers", value(12), ErrorCode::kInvalidArgument},
                                   {"num_kv_shared_layers", value(11), ErrorCode::kInvalidArgument},
                                   {"num_attention_heads", value(3), ErrorCode::kInvalidArgument},
                                   {"num_attention_heads", value(0), ErrorCode::kInvalidArgument},
                                   {"hidden_size", value(-1), ErrorCode::kInvalidArgument},
                                   {"hidden_size", value(1e18), ErrorCode::kInvalidArgument},
                                   {"hidden_size", value("128"), ErrorCode::kInvalidArgument},
                                   {"head_dim", value(33), ErrorCode::kInvalidArgument},
                                   {"num_hidden_layers", value(11), ErrorCode::kInvalidArgument},
                                   {"layer_types", value("x"), ErrorCode::kInvalidArgument},
                                   {"dtype", value("int8"), ErrorCode::kUnsupported}};
  for (const Edit& edit : edits) {
    auto config = base_config();
    text(config)[edit.key] = edit.value;
    const auto result = read(config);
    ASSERT_FALSE(result.ok()) << edit.key << boost::json::serialize(edit.value);
    EXPECT_EQ(result.error().code, edit.code) << edit.key;
    const std::string named =
        std::string(edit.key) == "num_hidden_layers" ? "layer_types" : edit.key;
    EXPECT_THAT(result.error().message, HasSubstr(named));
  }
}

TEST(Gemma4Config, RopeBlocksAreChecked) {
  const auto with = [](const char* kind, const char* key, boost::json::value value) {
    auto config = base_config();
    text(config)["rope_parameters"].as_object()[kind].as_object()[key] = std::move(value);
    return read(config);
  };
  EXPECT_THAT(with("full_attention", "rope_type", "yarn").error().message,
              HasSubstr("full_attention.rope_type"));
  EXPECT_THAT(with("sliding_attention", "rope_theta", nullptr).error().message,
              HasSubstr("rope_theta"));
  EXPECT_EQ(with("full_attention", "factor", 8.0)->full_rope.factor, 8.0);
}

TEST(Gemma4Config, TheEmbeddingScaleIsRoundedAsTheCheckpointsTypeSays) {
  const auto scale = [](std::int64_t hidden, const char* dtype) {
    auto config = base_config();
    text(config)["hidden_size"] = hidden;
    text(config)["dtype"] = dtype;
    return read(config)->embedding_scale;
  };
  EXPECT_EQ(scale(5376, "bfloat16"), 73.5f);
  EXPECT_EQ(scale(2816, "bfloat16"), 53.0f);
  EXPECT_EQ(scale(3840, "bfloat16"), 62.0f);
  EXPECT_EQ(scale(2560, "float16"), 50.5f);
  EXPECT_EQ(scale(1536, "bfloat16"), 39.25f);
  EXPECT_FLOAT_EQ(scale(5376, "float32"), 73.32121f);
}

TEST(Gemma4Config, SharedLayersReadTheLastOwnLayerOfTheirKind) {
  auto config = base_config();
  text(config)["num_kv_shared_layers"] = 4;
  text(config)["use_double_wide_mlp"] = true;
  const auto result = read(config);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->kv_layer(7), 7);
  EXPECT_EQ(result->kv_layer(8), 7);
  EXPECT_EQ(result->kv_layer(10), 7);
  EXPECT_EQ(result->kv_layer(11), 5);
  EXPECT_EQ(result->mlp_size(7), 256);
  EXPECT_EQ(result->mlp_size(8), 512);
}

TEST(Gemma4Config, FullLayersHaveTheirOwnHeads) {
  const auto result = read(base_config());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->kv(0), (tensor::KvGeometry{2, 32}));
  EXPECT_EQ(result->kv(5), (tensor::KvGeometry{1, 64}));
  auto config = base_config();
  text(config)["attention_k_eq_v"] = false;
  EXPECT_EQ(read(config)->kv(5), (tensor::KvGeometry{2, 64}));
}

}  // namespace
}  // namespace flotilla::models::gemma4
