#include "flotilla/models/gemma4/gemma4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <variant>

#include "flotilla/checkpoint/mapped_file.h"
#include "flotilla/checkpoint/safetensors.h"
#include "flotilla/checkpoint/test_folder.h"
#include "flotilla/models/contiguous_kv.h"
#include "flotilla/models/model_test_util.h"

namespace flotilla::models::gemma4 {
namespace {
using checkpoint::TestFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kDense = FLOTILLA_SOURCE_DIR "/tests/reference/gemma4-dense";
const std::string kPerLayer = FLOTILLA_SOURCE_DIR "/tests/reference/gemma4-ple";
constexpr std::string_view kMlxPrefix = "language_model.model.";

using Names = std::vector<std::string>;
Names keep(const std::string& name) { return {name}; }
void keep_config(boost::json::value&) {}
boost::json::object& text(boost::json::value& config) {
  return config.as_object()["text_config"].as_object();
}

// Long enough to leave the window of 16 and to need a second block.
std::vector<TokenId> some_ids() {
  std::vector<TokenId> ids;
  for (int i = 0; i < 45; ++i) ids.push_back((i * 37 + 2) % 500);
  return ids;
}

std::vector<float> logits_of(const std::string& folder) {
  auto model = TestModel::load(folder);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? (*model)->logits(some_ids()) : std::vector<float>();
}

std::string load_error(const std::string& from,
                       const std::function<Names(const std::string&)>& rename,
                       const std::function<void(boost::json::value&)>& edit,
                       ErrorCode* code = nullptr) {
  const TestFolder folder;
  const Status written = derive_checkpoint(from, folder.path(), rename, edit);
  EXPECT_TRUE(written.ok()) << written.error().message;
  const auto model = TestModel::load(folder.path());
  if (model.ok()) return "";
  if (code != nullptr) *code = model.error().code;
  EXPECT_THAT(model.error().message, HasSubstr(folder.path()));
  return model.error().message;
}

class References : public ::testing::TestWithParam<const char*> {};

// The whole comparison is flotilla-reference-check; this is the part that every build should run.
TEST_P(References, LogitsOfAShortPromptAgree) {
  const std::string folder = std::string(FLOTILLA_SOURCE_DIR "/tests/reference/") + GetParam();
  const auto file = checkpoint::MappedFile::open(folder + "/expected.safetensors");
  ASSERT_TRUE(file.ok());
  const std::span<const std::byte> bytes((*file)->data(), (*file)->size());
  const auto header = checkpoint::parse_safetensors_header(bytes, bytes.size(), "expected");
  ASSERT_TRUE(header.ok());
  std::vector<TokenId> ids;
  std::vector<float> expected;
  for (const auto& entry : header->tensors) {
    if (entry.name == "p0.ids") {
      ids.resize(entry.bytes / sizeof(TokenId));
      std::memcpy(ids.data(), bytes.data() + entry.offset, entry.bytes);
    }
    if (entry.name == "p0.logits") {
      expected.resize(entry.bytes / sizeof(float));
      std::memcpy(expected.data(), bytes.data() + entry.offset, entry.bytes);
    }
  }
  auto model = TestModel::load(folder);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<float> logits = (*model)->logits(ids);
  ASSERT_EQ(logits.size(), expected.size());
  for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], 2e-4) << i;
}
INSTANTIATE_TEST_SUITE_P(Gemma4, References, ::testing::Values("gemma4-dense", "gemma4-ple"),
                         [](const auto& c) {
                           std::string name = c.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Gemma4, ChunksGiveTheBitsOfTheWholePrompt) {
  for (const std::string& folder : {kDense, kPerLayer}) {
    auto model = TestModel::load(folder);
    ASSERT_TRUE(model.ok());
    const auto whole = (*model)->logits(some_ids());
    for (const std::size_t chunk : {1u, 7u, 16u, 33u})
      EXPECT_EQ((*model)->logits(some_ids(), chunk), whole) << chunk;
  }
}

TEST(Gemma4, OnlyWantedRowsComeOutInInputOrder) {
  auto loaded = TestModel::load(kDense);
  ASSERT_TRUE(loaded.ok());
  const CausalLM& model = (*loaded)->model();
  auto backend = backend::make_cpu_backend({.num_threads = 1});
  ASSERT_TRUE(backend.ok());
  const auto workspace = model.make_workspace();
  const std::vector<TokenId> ids = some_ids();
  const std::span<const TokenId> all(ids);
  const auto vocab = static_cast<std::size_t>(model.info().vocab_size);
  const auto row_of = [&](std::span<const TokenId> prompt, std::size_t i) {
    const auto logits = (*loaded)->logits(prompt);
    return std::vector<float>(logits.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                              logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
  };
  std::vector<std::unique_ptr<ContiguousKv>> kv;
  std::vector<ForwardRow> rows;
  const auto add = [&](std::span<const TokenId> prompt, WantsLogits wants) {
    kv.push_back(std::make_unique<ContiguousKv>(model.state_layout(), 64));
    rows.push_back(
        {.ids = prompt, .first_position = 0, .wants_logits = wants, .layers = kv.back()->views(0)});
  };
  add(all.first(5), WantsLogits::kLast);
  add(all.subspan(5, 3), WantsLogits::kNone);
  add(all.subspan(8, 2), WantsLogits::kAll);
  add(all.subspan(10, 9), WantsLogits::kLast);
  const tensor::Tensor out = model.forward(**backend, *workspace, {.rows = rows});
  ASSERT_EQ(out.shape(), (tensor::Shape{4, static_cast<std::int64_t>(vocab)}));
  const auto got = [&](std::size_t i) {
    return std::vector<float>(out.data<float>() + i * vocab, out.data<float>() + (i + 1) * vocab);
  };
  EXPECT_EQ(got(0), row_of(all.first(5), 4));
  EXPECT_EQ(got(1), row_of(all.subspan(8, 2), 0));
  EXPECT_EQ(got(2), row_of(all.subspan(8, 2), 1));
  EXPECT_EQ(got(3), row_of(all.subspan(10, 9), 8));
  // A step that wants nothing still stores its keys.
  rows.resize(1);
  rows[0].wants_logits = WantsLogits::kNone;
  EXPECT_TRUE(model.forward(**backend, *workspace, {.rows = rows}).empty());
}

TEST(Gemma4, EveryNamingOfTheTensorsLoads) {
  const auto expected = logits_of(kDense);
  for (const std::string prefix : {"model.language_model.", "model.", ""}) {
    const TestFolder folder;
    ASSERT_TRUE(
        derive_checkpoint(
            kDense, folder.path(),
            [&](const std::string& name) { return Names{prefix + name.substr(kMlxPrefix.size())}; },
            keep_config)
            .ok());
    EXPECT_EQ(logits_of(folder.path()), expected) << prefix;
  }
}

TEST(Gemma4, ATextOnlyExportHasItsConfigurationAtTheTop) {
  const TestFolder folder;
  ASSERT_TRUE(derive_checkpoint(kDense, folder.path(), keep, [](boost::json::value& config) {
                boost::json::object flat = text(config);
                flat["quantization"] = config.as_object()["quantization"];
                config = std::move(flat);
              }).ok());
  EXPECT_EQ(logits_of(folder.path()), logits_of(kDense));
}

TEST(Gemma4, ASeparateHeadIsUsedAndMissedByName) {
  const auto untie = [](boost::json::value& config) {
    text(config)["tie_word_embeddings"] = false;
  };
  EXPECT_THAT(load_error(kDense, keep, untie), HasSubstr("lm_head.weight"));
  const auto expected = logits_of(kDense);
  for (const std::string head : {"language_model.lm_head", "lm_head"}) {
    const TestFolder folder;
    const auto copy_head = [&](const std::string& name) {
      constexpr std::string_view kEmbedding = "language_model.model.embed_tokens";
      Names names = {name};
      if (name.starts_with(kEmbedding)) names.push_back(head + name.substr(kEmbedding.size()));
      return names;
    };
    ASSERT_TRUE(derive_checkpoint(kDense, folder.path(), copy_head, untie).ok());
    EXPECT_EQ(logits_of(folder.path()), expected);
    auto tied = TestModel::load(kDense);
    auto untied = TestModel::load(folder.path());
    ASSERT_TRUE(tied.ok() && untied.ok());
    EXPECT_EQ((*untied)->model().info().num_parameters,
              (*tied)->model().info().num_parameters + 512 * 128);
    EXPECT_EQ((*untied)->model().info().weight_bytes, (*tied)->model().info().weight_bytes);
  }
}

TEST(Gemma4, VisionTensorsAreToleratedAndUnknownLayerTensorsAreNot) {
  ErrorCode code{};
  const auto duplicate = [](const std::string& name) {
    return name == "language_model.model.layers.3.layer_scalar"
               ? Names{name, "language_model.model.layers.3.unheard_of"}
               : Names{name};
  };
  EXPECT_THAT(load_error(kDense, duplicate, keep_config), HasSubstr("layers.3.unheard_of"));
  EXPECT_THAT(load_error(
                  kDense, keep,
                  [](boost::json::value& config) {
                    text(config)["num_hidden_layers"] = 6;
                    text(config)["layer_types"].as_array().resize(6);
                  },
                  &code),
              AllOf(HasSubstr("layers."), HasSubstr("more")));
  EXPECT_EQ(code, ErrorCode::kUnsupported);
  EXPECT_TRUE(TestModel::load(FLOTILLA_SOURCE_DIR "/models/flotilla-tiny").ok());
}

TEST(Gemma4, AMissingTensorIsNamed) {
  for (const std::string gone :
       {"layers.7.mlp.up_proj.weight", "layers.7.mlp.up_proj.scales", "norm.weight",
        "layers.0.self_attn.v_proj.weight", "layers.5.self_attn.k_norm.weight"}) {
    const std::string name = std::string(kMlxPrefix) + gone;
    EXPECT_THAT(load_error(
                    kDense, [&](const std::string& n) { return n == name ? Names{} : Names{n}; },
                    keep_config),
                HasSubstr(name));
  }
}

TEST(Gemma4, AConfigurationThatDoesNotFitTheTensorsNamesTensorAndShapes) {
  EXPECT_THAT(
      load_error(kDense, keep,
                 [](boost::json::value& config) { text(config)["intermediate_size"] = 512; }),
      AllOf(HasSubstr("mlp.gate_proj.weight"), HasSubstr("[512, 128]"), HasSubstr("[256, 16]")));
  EXPECT_THAT(load_error(kDense, keep,
                         [](boost::json::value& config) { text(config)["global_head_dim"] = 128; }),
              HasSubstr("layers.5.self_attn."));
}

TEST(Gemma4, DeclaresWhatEachLayerKeeps) {
  auto dense = TestModel::load(kDense);
  ASSERT_TRUE(dense.ok());
  const auto& layers = (*dense)->model().state_layout().layers;
  ASSERT_EQ(layers.size(), 12u);
  const auto& window = std::get<state::WindowKv>(layers[0]);
  EXPECT_EQ(window.window, 16);
  EXPECT_EQ(window.geometry, (tensor::KvGeometry{2, 32}));
  EXPECT_EQ(std::get<state::PagedKv>(layers[5]).geometry, (tensor::KvGeometry{1, 64}));
  auto shared = TestModel::load(kPerLayer);
  ASSERT_TRUE(shared.ok());
  const auto& some = (*shared)->model().state_layout().layers;
  EXPECT_TRUE(std::holds_alternative<state::WindowKv>(some[0]));
  EXPECT_TRUE(std::holds_alternative<state::NoState>(some[11]));
}

TEST(Gemma4, InfoComesFromTheCheckpoint) {
  auto model = TestModel::load(FLOTILLA_SOURCE_DIR "/models/flotilla-tiny");
  ASSERT_TRUE(model.ok());
  const ModelInfo& info = (*model)->model().info();
  EXPECT_EQ(info.family, "gemma4");
  EXPECT_EQ(info.vocab_size, 4096);
  EXPECT_EQ(info.context_length, 4096);
  EXPECT_EQ(info.num_layers, 12);
  EXPECT_EQ(info.hidden_size, 256);
  EXPECT_THAT(info.eos_ids, ::testing::ElementsAre(1, 9, 16));
  // 4.5 bits for each of the weights in matrices.
  EXPECT_GT(info.weight_bytes, info.num_parameters * 4 / 8);
  EXPECT_LT(info.weight_bytes, info.num_parameters * 5 / 8);
}

}  // namespace
}  // namespace flotilla::models::gemma4
