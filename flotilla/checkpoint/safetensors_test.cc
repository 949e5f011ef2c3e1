#include "flotilla/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/safetensors_writer.h"
#include "flotilla/checkpoint/test_folder.h"

namespace flotilla::checkpoint {
namespace {
using ::testing::AllOf;
using ::testing::HasSubstr;

Result<SafetensorsHeader> parse(std::string_view bytes) {
  return parse_safetensors_header(std::as_bytes(std::span(bytes.data(), bytes.size())),
                                  bytes.size(), "model.safetensors");
}

struct BadFile {
  std::string name;
  std::string bytes;
  std::string expected;  // in the message
  bool names_tensor = true;
};

std::string length_prefix(std::uint64_t n) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &n, 8);
  return bytes;
}

std::string one(std::string_view entry, std::size_t data_bytes) {
  return TestFolder::safetensors(R"({"w":)" + std::string(entry) + "}",
                                 std::string(data_bytes, 'x'));
}

std::vector<BadFile> bad_files() {
  const std::string good = one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8);
  return {
      {"Empty", "", "too short", false},
      {"SevenBytes", std::string(7, '\0'), "too short", false},
      {"LengthOnly", length_prefix(2), "exceeds the file", false},
      {"HugeLength", length_prefix(std::uint64_t{1} << 63) + "{}", "exceeds the limit", false},
      {"LengthOfAllOnes", length_prefix(~std::uint64_t{0}) + "{}", "exceeds the limit", false},
      {"LengthOneBeyondFile", length_prefix(3) + "{}", "exceeds the file", false},
      {"ZeroLength", length_prefix(0) + "{}", "header", false},
      {"HeaderIsAList", TestFolder::safetensors("[]", ""), "no JSON object", false},
      {"HeaderIsNoJson", TestFolder::safetensors("{'a':1}", ""), "invalid JSON", false},
      {"HeaderIsNotUtf8", TestFolder::safetensors("{\"\xff\":1}", ""), "invalid JSON", false},
      {"HeaderTooDeep", TestFolder::safetensors(std::string(200, '[') + std::string(200, ']'), ""),
       "deeper", false},
      {"EntryIsANumber", one("7", 0), "no object"},
      {"NoDtype", one(R"({"shape":[2],"data_offsets":[0,8]})", 8), "dtype"},
      {"UnknownDtype", one(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})", 8), "F33"},
      {"DtypeIsANumber", one(R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})", 8), "dtype"},
      {"NoShape", one(R"({"dtype":"F32","data_offsets":[0,8]})", 8), "shape"},
      {"NegativeDimension", one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8),
       "no size"},
      {"FractionalDimension", one(R"({"dtype":"F32","shape":[2.5],"data_offsets":[0,8]})", 8),
       "no size"},
      {"ProductOverflows",
       one(R"({"dtype":"F32","shape":[8589934592,8589934592],"data_offsets":[0,8]})", 8),
       "too many elements"},
      {"ProductOverflowsToZero",
       one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})", 0),
       "too many elements"},
      {"BytesOverflow",
       one(R"({"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]})", 0),
       "too many elements"},
      {"TooManyDimensions", one(R"({"dtype":"F32","shape":[1,1,1,1,1,2],"data_offsets":[0,8]})", 8),
       "dimensions"},
      {"NoOffsets", one(R"({"dtype":"F32","shape":[2]})", 8), "data_offsets"},
      {"OneOffset", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", 8), "data_offsets"},
      {"ThreeOffsets", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", 8),
       "data_offsets"},
      {"ReversedOffsets", one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8),
       "reversed"},
      {"NegativeOffset", one(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", 8),
       "no sizes"},
      {"OffsetOutsideFile",
       one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,1000000000000000000]})", 8), "beyond"},
      {"OffsetOfAllOnes",
       one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})", 8), "beyond"},
      {"SizeNotTheShape", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,3]})", 3), "needs 8"},
      {"TruncatedTail", good.substr(0, good.size() - 1), "beyond"},
      {"TrailingBytes", good + "x", "at the end", false},
      {"MetadataIsAList", TestFolder::safetensors(R"({"__metadata__":[]})", ""), "__metadata__",
       false},
      {"MetadataValueIsANumber", TestFolder::safetensors(R"({"__metadata__":{"a":1}})", ""),
       "__metadata__.a", false},
      {"Overlap",
       TestFolder::safetensors(R"({"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("w":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                               "xxxxxx"),
       "overlap"},
      {"SamePlace",
       TestFolder::safetensors(R"({"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                               "xxxx"),
       "overlap"},
      {"Gap",
       TestFolder::safetensors(R"({"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("w":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})",
                               std::string(10, 'x')),
       "belong to no tensor"},
      {"Duplicate",
       TestFolder::safetensors(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                               std::string(8, 'x')),
       "twice"},
  };
}

class BadSafetensors : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensors, IsOneErrorThatNamesFileAndTensor) {
  const auto header = parse(GetParam().bytes);
  ASSERT_FALSE(header.ok());
  EXPECT_THAT(header.error().message,
              AllOf(HasSubstr("model.safetensors"), HasSubstr(GetParam().expected)));
  if (GetParam().names_tensor) {
    EXPECT_THAT(header.error().message, HasSubstr("'w'"));
  }
}

// The same through a real file: nothing may touch memory outside the mapping.
TEST_P(BadSafetensors, IsRefusedWhenACheckpointIsOpened) {
  const TestFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", GetParam().bytes);
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_THAT(checkpoint.error().message, HasSubstr(folder / "model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(All, BadSafetensors, ::testing::ValuesIn(bad_files()),
                         [](const auto& c) { return c.param.name; });

TEST(Safetensors, ReadsTypesShapesAndMetadata) {
  const std::string bytes = TestFolder::safetensors(
      R"({"__metadata__":{"format":"mlx"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]}}  )",
      std::string(16, 'x'));
  const auto header = parse(bytes);
  ASSERT_TRUE(header.ok()) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->metadata.at("format"), "mlx");
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].shape.rank(), 0u);
  EXPECT_EQ(header->tensors[1].name, "e");
  EXPECT_EQ(header->tensors[2].name, "b");
  EXPECT_EQ(header->tensors[2].shape, (tensor::Shape{2, 3}));
  EXPECT_EQ(header->tensors[2].offset + header->tensors[2].bytes, bytes.size());
}

TEST(Safetensors, AnEmptySetOfTensorsIsSound) {
  const auto header = parse(TestFolder::safetensors("{}", ""));
  ASSERT_TRUE(header.ok());
  EXPECT_TRUE(header->tensors.empty());
}

// Each single byte of a good file, changed or cut off: an error or another sound file, never a
// crash.
TEST(Safetensors, SurvivesEveryFlippedByteAndEveryTruncation) {
  const std::string good = TestFolder::safetensors(
      R"({"__metadata__":{"a":"b"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})",
      std::string(12, 'x'));
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {1, 16, 128, 255}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      const auto header = parse(bad);
      if (header.ok()) {
        for (const TensorEntry& t : header->tensors) EXPECT_LE(t.offset + t.bytes, bad.size());
      }
    }
    EXPECT_FALSE(parse(good.substr(0, i)).ok()) << i;
  }
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TestFolder folder;
  std::vector<TensorEntry> entries = {{.name = "b", .dtype = tensor::DType::kU32, .shape = {2, 2}},
                                      {.name = "a", .dtype = tensor::DType::kF32, .shape = {1}}};
  auto writer = SafetensorsWriter::create(folder / "model.safetensors", entries);
  ASSERT_TRUE(writer.ok());
  const std::uint32_t words[4] = {1, 2, 3, 4};
  const float value = 5;
  EXPECT_TRUE(writer->write(std::as_bytes(std::span(words))).ok());
  EXPECT_TRUE(writer->write(std::as_bytes(std::span(&value, 1))).ok());
  EXPECT_TRUE(writer->close().ok());
  folder.write("config.json", "{}");
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensor("b")->data<std::uint32_t>()[3], 4u);
  EXPECT_EQ(checkpoint->tensor("a")->data<float>()[0], 5.0f);
}

TEST(SafetensorsWriter, MissingDataAreNoticedAtTheEnd) {
  const TestFolder folder;
  auto writer = SafetensorsWriter::create(
      folder / "x.safetensors", {{.name = "a", .dtype = tensor::DType::kF32, .shape = {1}}});
  ASSERT_TRUE(writer.ok());
  EXPECT_FALSE(writer->close().ok());
}

}  // namespace
}  // namespace flotilla::checkpoint
