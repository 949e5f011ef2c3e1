// The check must be able to fail.
#include "report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "flotilla/base/ids.h"
#include "flotilla/checkpoint/safetensors.h"
#include "flotilla/checkpoint/safetensors_writer.h"
#include "flotilla/checkpoint/test_folder.h"

namespace flotilla::reference_check {
namespace {

const std::string kReferences = FLOTILLA_SOURCE_DIR "/tests/reference/";

// gemma4-dense with its two short prompts alone, the first value of `tensor` being something else.
template <class T>
Outcome check_with(const std::string& tensor, T value) {
  const checkpoint::TestFolder folder;
  folder.copy(kReferences + "gemma4-dense", "model");
  const std::string path = folder / "model/expected.safetensors";
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto header = checkpoint::parse_safetensors_header(
      std::as_bytes(std::span(bytes.data(), bytes.size())), bytes.size(), path);
  EXPECT_TRUE(header.ok());
  std::vector<checkpoint::TensorEntry> entries;
  std::string data;
  for (const checkpoint::TensorEntry& entry : header->tensors) {
    if (!entry.name.starts_with("p0.") && !entry.name.starts_with("p1.")) continue;
    entries.push_back(entry);
    if (entry.name == tensor) std::memcpy(bytes.data() + entry.offset, &value, sizeof value);
    data += bytes.substr(entry.offset, entry.bytes);
  }
  auto writer = checkpoint::SafetensorsWriter::create(path, entries);
  EXPECT_TRUE(writer.ok());
  EXPECT_TRUE(writer->write(std::as_bytes(std::span(data.data(), data.size()))).ok());
  EXPECT_TRUE(writer->close().ok());
  return check_folder(folder / "model");
}

TEST(ReferenceCheck, TheRightOutputsPass) { EXPECT_EQ(check_with("none", 0.0f), Outcome::kPassed); }

TEST(ReferenceCheck, AWrongLogitFails) {
  EXPECT_EQ(check_with("p0.logits", 17.0f), Outcome::kFailed);
}

TEST(ReferenceCheck, ANotANumberFails) {
  EXPECT_EQ(check_with("p1.logits", NAN), Outcome::kFailed);
}

TEST(ReferenceCheck, AWrongGreedyTokenFails) {
  EXPECT_EQ(check_with("p1.greedy", TokenId{3}), Outcome::kFailed);
}

TEST(ReferenceCheck, AFolderThatIsNoneFails) {
  EXPECT_EQ(check_folder("/nonexistent"), Outcome::kFailed);
}

TEST(ReferenceCheck, AnUnsupportedFamilyIsNeitherGoodNorBad) {
  EXPECT_EQ(check_folder(kReferences + "qwen3_5-moe"), Outcome::kUnsupported);
  EXPECT_EQ(check_folder(kReferences + "gemma4-moe"), Outcome::kUnsupported);
}

}  // namespace
}  // namespace flotilla::reference_check
