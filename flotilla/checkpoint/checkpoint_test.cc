#include "flotilla/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdint>
#include <filesystem>

#include "flotilla/checkpoint/safetensors_writer.h"
#include "flotilla/checkpoint/test_folder.h"

namespace flotilla::checkpoint {
namespace {
using backend::WeightFormat;
using tensor::DType;
using tensor::Shape;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::string_view kAffine4 = R"({"quantization":{"group_size":64,"bits":4}})";

// Tensors of the given types, filled with a byte pattern.
void write_tensors(const TestFolder& folder, const std::string& file,
                   std::vector<TensorEntry> entries) {
  auto writer = SafetensorsWriter::create(folder / file, entries);
  ASSERT_TRUE(writer.ok());
  for (const TensorEntry& entry : entries) {
    const std::vector<std::byte> data(
        static_cast<std::size_t>(entry.shape.num_elements()) * tensor::dtype_bytes(entry.dtype),
        std::byte{0x3f});
    ASSERT_TRUE(writer->write(data).ok());
  }
  ASSERT_TRUE(writer->close().ok());
}

Result<Checkpoint> open_with(const TestFolder& folder, std::vector<TensorEntry> entries,
                             std::string_view config = kAffine4) {
  folder.write("config.json", config);
  write_tensors(folder, "model.safetensors", std::move(entries));
  return Checkpoint::open(folder.path());
}

std::vector<TensorEntry> packed(const std::string& module, std::int64_t n, std::int64_t words,
                                std::int64_t groups, DType scales = DType::kBF16,
                                bool biases = true) {
  std::vector<TensorEntry> entries = {
      {.name = module + ".weight", .dtype = DType::kU32, .shape = {n, words}},
      {.name = module + ".scales", .dtype = scales, .shape = {n, groups}}};
  if (biases)
    entries.push_back({.name = module + ".biases", .dtype = scales, .shape = {n, groups}});
  return entries;
}

struct Coding {
  std::string name;
  std::string quantization;  // of config.json
  std::int64_t words;        // per row of 256 elements
  std::int64_t groups;
  bool affine;
  WeightFormat format;
  int bits;
  int group;
};

std::vector<Coding> codings() {
  std::vector<Coding> all;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      all.push_back(
          {"affine" + std::to_string(bits) + "g" + std::to_string(group),
           R"({"bits":)" + std::to_string(bits) + R"(,"group_size":)" + std::to_string(group) + "}",
           8 * bits, 256 / group, true, WeightFormat::kAffine, bits, group});
    }
  }
  all.push_back({"mxfp4", R"({"mode":"mxfp4","bits":4,"group_size":32})", 32, 8, false,
                 WeightFormat::kMxfp4, 4, 32});
  all.push_back({"mxfp8", R"({"mode":"mxfp8","bits":8,"group_size":32})", 64, 8, false,
                 WeightFormat::kMxfp8, 8, 32});
  all.push_back({"nvfp4", R"({"mode":"nvfp4","bits":4,"group_size":16})", 32, 16, false,
                 WeightFormat::kNvfp4, 4, 16});
  return all;
}

class EveryCoding : public ::testing::TestWithParam<Coding> {};

TEST_P(EveryCoding, IsReadFromShapesAndAgreesWithTheMetadata) {
  const Coding& c = GetParam();
  const TestFolder folder;
  const auto checkpoint = open_with(
      folder, packed("m", 3, c.words, c.groups, c.affine ? DType::kBF16 : DType::kU8, c.affine),
      R"({"quantization":)" + c.quantization + "}");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  std::vector<std::string> notes;
  for (const auto& matrix :
       {checkpoint->matrix("m", 3, 256, &notes), checkpoint->matrix("m", &notes)}) {
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    EXPECT_EQ(matrix->format, c.format);
    EXPECT_EQ(matrix->bits, c.bits);
    EXPECT_EQ(matrix->group_size, c.group);
    EXPECT_EQ(matrix->n, 3);
    EXPECT_EQ(matrix->k, 256);
    EXPECT_EQ(matrix->biases.empty(), !c.affine);
  }
  EXPECT_THAT(notes, IsEmpty());
}
INSTANTIATE_TEST_SUITE_P(All, EveryCoding, ::testing::ValuesIn(codings()),
                         [](const auto& c) { return c.param.name; });

TEST(CheckpointMatrix, ShapesWinOverMetadataAndTheDisagreementIsNoted) {
  // 8 bits in groups of 32 passes 32 * words == bits * group * groups of 4-bit, groups of 64, for
  // half the row: only the known row length tells them apart.
  const TestFolder folder;
  const auto checkpoint = open_with(folder, packed("m", 2, 64, 8));
  ASSERT_TRUE(checkpoint.ok());
  std::vector<std::string> notes;
  const auto matrix = checkpoint->matrix("m", 2, 256, &notes);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->bits, 8);
  EXPECT_EQ(matrix->group_size, 32);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], AllOf(HasSubstr("m.weight"), HasSubstr("8-bit"), HasSubstr("4-bit")));
}

TEST(CheckpointMatrix, FloatMatricesOfEveryTypeLoad) {
  for (const auto& [dtype, format] :
       {std::pair(DType::kF32, WeightFormat::kF32), std::pair(DType::kF16, WeightFormat::kF16),
        std::pair(DType::kBF16, WeightFormat::kBF16)}) {
    const TestFolder folder;
    const auto checkpoint =
        open_with(folder, {{.name = "m.weight", .dtype = dtype, .shape = {2, 6}}});
    ASSERT_TRUE(checkpoint.ok());
    const auto matrix = checkpoint->matrix("m", 2, 6);
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    EXPECT_EQ(matrix->format, format);
    EXPECT_TRUE(matrix->scales.empty());
  }
}

struct BadMatrix {
  std::string name;
  std::vector<TensorEntry> entries;
  std::string expected;
};

class BadMatrices : public ::testing::TestWithParam<BadMatrix> {};
TEST_P(BadMatrices, AreRefusedByFileAndTensor) {
  const TestFolder folder;
  const auto checkpoint = open_with(folder, GetParam().entries);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto matrix = checkpoint->matrix("m", 2, 256);
  ASSERT_FALSE(matrix.ok());
  EXPECT_THAT(matrix.error().message,
              AllOf(HasSubstr(folder.path()), HasSubstr("'m."), HasSubstr(GetParam().expected)));
}
INSTANTIATE_TEST_SUITE_P(
    All, BadMatrices,
    ::testing::Values(
        BadMatrix{"Missing", {{.name = "x", .dtype = DType::kF32, .shape = {1}}}, "is missing"},
        BadMatrix{"PackedWithoutScales",
                  {{.name = "m.weight", .dtype = DType::kU32, .shape = {2, 32}}},
                  "m.scales"},
        BadMatrix{
            "IntegerWeight", {{.name = "m.weight", .dtype = DType::kI32, .shape = {2, 32}}}, "I32"},
        BadMatrix{"WrongShape",
                  {{.name = "m.weight", .dtype = DType::kF32, .shape = {2, 255}}},
                  "[2, 255]"},
        BadMatrix{"Transposed",
                  {{.name = "m.weight", .dtype = DType::kF32, .shape = {256, 2}}},
                  "[256, 2]"},
        BadMatrix{"WrongRows", packed("m", 3, 32, 4), "needs packed U32 of [2, 256]"},
        BadMatrix{"WordsDoNotFit", packed("m", 2, 33, 4), "no known coding"},
        BadMatrix{"SevenBits", packed("m", 2, 56, 4), "no known coding"},
        BadMatrix{"GroupsDoNotDivide", packed("m", 2, 32, 3), "no known coding"},
        BadMatrix{"GroupOf256", packed("m", 2, 32, 1), "no known coding"},
        BadMatrix{"NoGroups", packed("m", 2, 32, 0), "no known coding"},
        BadMatrix{"ByteScalesWithBiases", packed("m", 2, 32, 8, DType::kU8, true),
                  "affine scales are"},
        BadMatrix{"FloatScalesWithoutBiases", packed("m", 2, 32, 8, DType::kBF16, false),
                  "without biases are U8"},
        BadMatrix{"BiasesOfAnotherShape",
                  {{.name = "m.weight", .dtype = DType::kU32, .shape = {2, 32}},
                   {.name = "m.scales", .dtype = DType::kBF16, .shape = {2, 4}},
                   {.name = "m.biases", .dtype = DType::kBF16, .shape = {2, 2}}},
                  "but the scales are"},
        BadMatrix{"FloatWeightWithScales",
                  {{.name = "m.weight", .dtype = DType::kF32, .shape = {2, 256}},
                   {.name = "m.scales", .dtype = DType::kBF16, .shape = {2, 4}},
                   {.name = "m.biases", .dtype = DType::kBF16, .shape = {2, 4}}},
                  "needs packed U32"}),
    [](const auto& c) { return c.param.name; });

TEST(CheckpointVector, BecomesFloat32AndItsShapeIsChecked) {
  const TestFolder folder;
  const auto checkpoint = open_with(folder, {{.name = "a", .dtype = DType::kBF16, .shape = {2}},
                                             {.name = "i", .dtype = DType::kI32, .shape = {2}}});
  ASSERT_TRUE(checkpoint.ok());
  const auto vector = checkpoint->vector("a", Shape{2});
  ASSERT_TRUE(vector.ok());
  EXPECT_EQ(vector->dtype(), DType::kF32);
  EXPECT_EQ(vector->data<float>()[1], tensor::bf16_to_f32(0x3f3f));
  EXPECT_THAT(checkpoint->vector("a", Shape{3}).error().message,
              AllOf(HasSubstr("'a'"), HasSubstr("[3]")));
  EXPECT_THAT(checkpoint->vector("i", Shape{2}).error().message, HasSubstr("I32"));
  EXPECT_EQ(checkpoint->vector("b", Shape{2}).error().code, ErrorCode::kNotFound);
}

TEST(Checkpoint, MisalignedTensorsAreCopiedToAnAlignedPlace) {
  const TestFolder folder;
  folder.write("config.json", "{}");
  const float value = 1.5f;
  std::string data = "x" + std::string(reinterpret_cast<const char*>(&value), 4);
  folder.write("model.safetensors",
               TestFolder::safetensors(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                                       data));
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  const auto tensor = checkpoint->tensor("w");
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->bytes()) % alignof(float), 0u);
  EXPECT_EQ(tensor->data<float>()[0], value);
}

TEST(Checkpoint, TensorsOutliveTheCheckpoint) {
  const TestFolder folder;
  tensor::Tensor tensor;
  {
    const auto checkpoint = open_with(folder, {{.name = "a", .dtype = DType::kU8, .shape = {2}}});
    ASSERT_TRUE(checkpoint.ok());
    tensor = *checkpoint->tensor("a");
  }
  EXPECT_EQ(tensor.data<std::uint8_t>()[1], 0x3f);
}

TEST(Checkpoint, FindsTheTextModelUnderEveryName) {
  for (const std::string prefix :
       {"language_model.model.", "model.language_model.", "model.", ""}) {
    const TestFolder folder;
    const auto checkpoint = open_with(
        folder, {{.name = prefix + "embed_tokens.weight", .dtype = DType::kF32, .shape = {1, 1}}});
    ASSERT_TRUE(checkpoint.ok());
    ASSERT_TRUE(checkpoint->text_prefix().ok());
    EXPECT_EQ(*checkpoint->text_prefix(), prefix);
  }
  const TestFolder none;
  EXPECT_THAT(open_with(none, {{.name = "x", .dtype = DType::kF32, .shape = {1}}})
                  ->text_prefix()
                  .error()
                  .message,
              HasSubstr("embed_tokens"));
  const TestFolder two;
  EXPECT_FALSE(
      open_with(two, {{.name = "model.embed_tokens.weight", .dtype = DType::kF32, .shape = {1, 1}},
                      {.name = "embed_tokens.weight", .dtype = DType::kF32, .shape = {1, 1}}})
          ->text_prefix()
          .ok());
}

TEST(Checkpoint, BadConfigurationsAreRefused) {
  for (const std::string_view config : {"", "[]", "{", "{\"a\":1,\"a\":2}"}) {
    const TestFolder folder;
    const auto checkpoint =
        open_with(folder, {{.name = "a", .dtype = DType::kU8, .shape = {2}}}, config);
    ASSERT_FALSE(checkpoint.ok());
    EXPECT_THAT(checkpoint.error().message, HasSubstr("config.json"));
  }
  const TestFolder deep;
  EXPECT_FALSE(open_with(deep, {{.name = "a", .dtype = DType::kU8, .shape = {2}}},
                         "{\"zz\":" + std::string(100000, '['))
                   .ok());
  const TestFolder empty;
  EXPECT_EQ(Checkpoint::open(empty.path()).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Checkpoint::open("/nonexistent/model").error().code, ErrorCode::kNotFound);
}

class Shards : public ::testing::Test {
 protected:
  void SetUp() override {
    folder.write("config.json", "{}");
    for (const std::string i : {"1", "2", "3"}) {
      write_tensors(folder, shard(i), {{.name = "t" + i, .dtype = DType::kF32, .shape = {4}}});
    }
  }
  static std::string shard(const std::string& i) {
    return "model-0000" + i + "-of-00003.safetensors";
  }
  void write_index(const std::string& map) {
    folder.write("model.safetensors.index.json", R"({"metadata":{},"weight_map":{)" + map + "}}");
  }
  void write_full_index() {
    write_index(R"("t1":")" + shard("1") + R"(","t2":")" + shard("2") + R"(","t3":")" + shard("3") +
                "\"");
  }
  std::string error() {
    const auto checkpoint = Checkpoint::open(folder.path());
    return checkpoint.ok() ? "" : checkpoint.error().message;
  }
  TestFolder folder;
};

TEST_F(Shards, LoadWithAndWithoutAnIndex) {
  EXPECT_EQ(error(), "");
  write_full_index();
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
  EXPECT_EQ(checkpoint->weight_files().size(), 3u);
}

TEST_F(Shards, AMissingShardIsNamed) {
  std::filesystem::remove(folder / shard("2"));
  EXPECT_THAT(error(),
              AllOf(HasSubstr("missing"), HasSubstr(shard("2")), Not(HasSubstr(shard("1")))));
  write_full_index();
  EXPECT_THAT(error(),
              AllOf(HasSubstr("missing"), HasSubstr(shard("2")), Not(HasSubstr(shard("1")))));
}

TEST_F(Shards, ATruncatedShardIsNamed) {
  write_full_index();
  std::filesystem::resize_file(folder / shard("2"),
                               std::filesystem::file_size(folder / shard("2")) - 4);
  EXPECT_THAT(error(), AllOf(HasSubstr(shard("2")), HasSubstr("'t2'")));
}

TEST_F(Shards, AStrayFileIsIgnoredWhenThereIsAnIndex) {
  write_full_index();
  write_tensors(folder, "model.safetensors", {{.name = "t1", .dtype = DType::kF32, .shape = {9}}});
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->tensor("t1")->shape(), Shape{4});
}

TEST_F(Shards, AStrayTensorIsIgnoredWhenThereIsAnIndex) {
  write_tensors(folder, shard("3"),
                {{.name = "t3", .dtype = DType::kF32, .shape = {4}},
                 {.name = "t1", .dtype = DType::kF32, .shape = {1}}});
  EXPECT_THAT(error(), AllOf(HasSubstr("'t1'"), HasSubstr("also in")));
  write_full_index();
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(checkpoint->tensor("t1")->shape(), Shape{4});
}

TEST_F(Shards, OddNamesFromTheIndexAreAccepted) {
  std::filesystem::rename(folder / shard("1"),
                          folder / "model.safetensors-00001-of-00002.safetensors");
  write_index(R"("t1":"model.safetensors-00001-of-00002.safetensors")");
  EXPECT_EQ(error(), "");
}

TEST_F(Shards, ATensorThatNoShardHasIsNamed) {
  write_index(R"("t1":")" + shard("1") + R"(","gone":")" + shard("2") + "\"");
  EXPECT_THAT(error(), AllOf(HasSubstr("'gone'"), HasSubstr(shard("2"))));
}

TEST_F(Shards, AnIndexThatLeavesTheFolderIsRefused) {
  for (const std::string name :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "", ".safetensors",
        "a\\\\b.safetensors", "x.safetensors\\u0000.safetensors", "x.bin"}) {
    write_index(R"("t1":")" + name + "\"");
    EXPECT_THAT(error(), AllOf(HasSubstr("index.json"), HasSubstr("'t1'"))) << name;
  }
}

TEST_F(Shards, ADamagedIndexIsRefused) {
  for (const std::string_view text : {"", "[]", "{}", R"({"weight_map":[]})",
                                      R"({"weight_map":{}})", R"({"weight_map":{"t1":3}})"}) {
    folder.write("model.safetensors.index.json", text);
    EXPECT_THAT(error(), HasSubstr("index.json")) << text;
  }
}

TEST_F(Shards, TwoSetsWithoutAnIndexAreRefused) {
  write_tensors(folder, "model-00001-of-00002.safetensors",
                {{.name = "u", .dtype = DType::kF32, .shape = {4}}});
  EXPECT_THAT(error(), HasSubstr("two different sets"));
}

TEST(WeightFiles, ASingleFileOfAnyNameLoadsAndSeveralDoNot) {
  const TestFolder folder;
  folder.write("config.json", "{}");
  EXPECT_THAT(Checkpoint::open(folder.path()).error().message, HasSubstr("no *.safetensors"));
  write_tensors(folder, "weights.safetensors", {{.name = "u", .dtype = DType::kF32, .shape = {4}}});
  EXPECT_TRUE(Checkpoint::open(folder.path()).ok());
  write_tensors(folder, "other.safetensors", {{.name = "v", .dtype = DType::kF32, .shape = {4}}});
  EXPECT_THAT(Checkpoint::open(folder.path()).error().message, HasSubstr("several"));
}

TEST(Checkpoint, TheBundledModelOpens) {
  const auto checkpoint = Checkpoint::open(FLOTILLA_SOURCE_DIR "/models/flotilla-tiny");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(*checkpoint->text_prefix(), "language_model.model.");
  std::vector<std::string> notes;
  const auto matrix =
      checkpoint->matrix("language_model.model.layers.0.mlp.down_proj", 256, 1024, &notes);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_EQ(matrix->bits, 4);
  EXPECT_THAT(notes, IsEmpty());
}

}  // namespace
}  // namespace flotilla::checkpoint
