#include "flotilla/checkpoint/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "flotilla/json/json.h"

namespace flotilla::checkpoint {
namespace {
using backend::WeightFormat;
using ::testing::HasSubstr;

Result<QuantizationConfig> parse(std::string_view text) {
  return QuantizationConfig::parse(json::parse(text).value());
}
const Quantization kFour{WeightFormat::kAffine, 4, 64};
const Quantization kEight{WeightFormat::kAffine, 8, 32};

TEST(QuantizationConfig, AbsentMeansDense) {
  EXPECT_EQ(parse("{}")->lookup("a.b"), std::nullopt);
  EXPECT_EQ(parse(R"({"quantization":null})")->lookup("a.b"), std::nullopt);
}

TEST(QuantizationConfig, EitherNameWorksAndAMissingModeIsAffine) {
  EXPECT_EQ(parse(R"({"quantization":{"group_size":64,"bits":4}})")->lookup("a"), kFour);
  EXPECT_EQ(
      parse(R"({"quantization_config":{"group_size":64,"bits":4,"mode":"affine"}})")->lookup("a"),
      kFour);
}

TEST(QuantizationConfig, OverridesByModule) {
  const auto config = parse(R"({"quantization":{"group_size":32,"bits":4,"mode":"mxfp4",
      "language_model.model.layers.0.router.proj":{"bits":8,"group_size":32},
      "language_model.model.layers.0.mlp.up_proj":false,
      "language_model.model.layers.0.mlp.down_proj":true,
      "language_model.model.layers.0.mlp.gate_proj":{"mode":"nvfp4"},
      "some_note":"text"}})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const std::string layer = "language_model.model.layers.0.";
  EXPECT_EQ(config->lookup(layer + "self_attn.q_proj"),
            (Quantization{WeightFormat::kMxfp4, 4, 32}));
  // No mode in an override is affine although the whole model is mxfp4.
  EXPECT_EQ(config->lookup(layer + "router.proj"), kEight);
  EXPECT_EQ(config->lookup(layer + "mlp.up_proj"), std::nullopt);
  EXPECT_EQ(config->lookup(layer + "mlp.down_proj"), (Quantization{WeightFormat::kMxfp4, 4, 32}));
  EXPECT_EQ(config->lookup(layer + "mlp.gate_proj"), (Quantization{WeightFormat::kNvfp4, 4, 16}));
}

TEST(QuantizationConfig, OverridesMatchAcrossNamingAndNotAcrossLayers) {
  const auto config = parse(R"({"quantization":{"group_size":64,"bits":4,
      "model.layers.1.mlp.up_proj":{"bits":8,"group_size":32},
      "embed_tokens":{"bits":8,"group_size":32}}})");
  ASSERT_TRUE(config.ok());
  for (const std::string prefix :
       {"language_model.model.", "model.language_model.", "model.", ""}) {
    EXPECT_EQ(config->lookup(prefix + "layers.1.mlp.up_proj"), kEight);
    EXPECT_EQ(config->lookup(prefix + "layers.11.mlp.up_proj"), kFour);
    EXPECT_EQ(config->lookup(prefix + "embed_tokens"), kEight);
    EXPECT_EQ(config->lookup(prefix + "my_embed_tokens"), kFour);
  }
}

TEST(QuantizationConfig, WhatWeCannotReadIsRefused) {
  const auto error = [](std::string_view text) {
    const auto config = parse(text);
    return config.ok() ? std::string() : config.error().message;
  };
  EXPECT_THAT(error(R"({"quantization":7})"), HasSubstr("object"));
  EXPECT_THAT(error(R"({"quantization":{"mode":"q4_k"}})"), HasSubstr("q4_k"));
  EXPECT_THAT(error(R"({"quantization":{"bits":7}})"), HasSubstr("7 bits"));
  EXPECT_THAT(error(R"({"quantization":{"group_size":48}})"), HasSubstr("groups of 48"));
  EXPECT_THAT(error(R"({"quantization":{"mode":"mxfp4","group_size":64,"bits":4}})"),
              HasSubstr("groups of 64"));
  EXPECT_THAT(error(R"({"quantization":{"bits":"4"}})"), HasSubstr("bits"));
  EXPECT_THAT(error(R"({"quantization":{"bits":4,"a.b":{"bits":9}}})"), HasSubstr("a.b"));
  EXPECT_THAT(error(R"({"quantization_config":{"quant_method":"gptq","bits":4}})"),
              HasSubstr("gptq"));
}

}  // namespace
}  // namespace flotilla::checkpoint
