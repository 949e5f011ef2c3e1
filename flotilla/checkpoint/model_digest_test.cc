#include "flotilla/checkpoint/model_digest.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "flotilla/base/sha256.h"
#include "flotilla/base/text.h"
#include "flotilla/checkpoint/digest_cache.h"
#include "flotilla/checkpoint/model_folder.h"
#include "flotilla/checkpoint/test_folder.h"

namespace flotilla::checkpoint {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Sha256, MatchesTheStandardsExamples) {
  Sha256 hash;
  hash.update("a");
  hash.update("bc");
  EXPECT_EQ(to_hex(hash.finish()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

class ModelDigestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("FLOTILLA_CACHE_DIR", cache.path().c_str(), 1);
    put("config.json", "{}");
    put("tokenizer.json", "{}");
    put("model.safetensors", TestFolder::safetensors("{}", ""));
  }
  void TearDown() override { ::unsetenv("FLOTILLA_CACHE_DIR"); }
  // Writes with a time stamp in the past: recent ones are not remembered.
  void put(const std::string& name, std::string_view bytes) {
    model.write(name, bytes);
    set_time(name, 1'000'000'000);
  }
  void set_time(const std::string& name, time_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (model / name).c_str(), times, 0), 0);
  }
  std::string hex(DigestMode mode = DigestMode::kCached) {
    const auto digest = model_digest(model.path(), mode);
    return digest.ok() ? digest->hex : digest.error().message;
  }
  TestFolder cache;
  TestFolder model;
};

TEST_F(ModelDigestTest, IsTheHashOfSortedPathsSizesAndHashes) {
  const auto digest = model_digest(model.path());
  ASSERT_TRUE(digest.ok()) << digest.error().message;
  ASSERT_EQ(digest->files.size(), 3u);
  Sha256 hash;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    hash.update(name);
    hash.update(std::string_view("\0", 1));
    hash.update(std::to_string(std::filesystem::file_size(model / name)));
    hash.update(std::string_view("\0", 1));
    hash.update(to_hex(*sha256_file(model / name)));
    hash.update("\n");
  }
  EXPECT_EQ(digest->hex, to_hex(hash.finish()));
}

TEST_F(ModelDigestTest, ChangesWithEveryFileThatMattersAndNoOther) {
  const std::string before = hex();
  put("README.md", "x");
  put("stray.safetensors", "x");
  EXPECT_EQ(hex(), before);
  put("chat_template.jinja", "x");
  const std::string with_template = hex();
  EXPECT_NE(with_template, before);
  put("chat_template.jinja", "yy");
  EXPECT_NE(hex(), with_template);
  std::filesystem::remove(model / "chat_template.jinja");
  EXPECT_EQ(hex(), before);
}

TEST_F(ModelDigestTest, UnchangedFilesAreNotReadAgain) {
  EXPECT_THAT(hex(DigestMode::kCacheOnly), HasSubstr("no digest known"));
  const std::string first = hex();
  const auto second = model_digest(model.path(), DigestMode::kCacheOnly);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->hex, first);
  for (const FileDigest& file : second->files) EXPECT_TRUE(file.from_cache) << file.path;
  set_time("config.json", 1'000'000'001);
  EXPECT_THAT(hex(DigestMode::kCacheOnly), HasSubstr("no digest known"));
  EXPECT_EQ(hex(), first);
}

TEST_F(ModelDigestTest, VerifyFindsDamageThatSizeAndTimeHide) {
  const std::string good = hex();
  EXPECT_THAT(verify_model(model.path())->damaged, IsEmpty());
  std::fstream(model / "tokenizer.json", std::ios::in | std::ios::out | std::ios::binary) << "[]";
  set_time("tokenizer.json", 1'000'000'000);
  EXPECT_EQ(hex(), good);
  const auto verified = verify_model(model.path());
  ASSERT_TRUE(verified.ok());
  EXPECT_THAT(verified->damaged, ElementsAre("tokenizer.json"));
  EXPECT_NE(verified->digest.hex, good);
  EXPECT_EQ(hex(), verified->digest.hex);
}

TEST_F(ModelDigestTest, FreshFilesAreNotRemembered) {
  model.write("tokenizer.json", "{ }");
  EXPECT_EQ(hex().size(), 64u);
  EXPECT_THAT(hex(DigestMode::kCacheOnly), HasSubstr("no digest known"));
}

TEST_F(ModelDigestTest, ADamagedCacheIsAnEmptyCache) {
  const std::string good = hex();
  for (const std::string_view text :
       {"", "[]", R"({"version":1,"files":3})", R"({"version":1,"files":{"/x":{"size":-1}}})",
        R"({"version":2})"}) {
    cache.write("digests.json", text);
    EXPECT_THAT(hex(DigestMode::kCacheOnly), HasSubstr("no digest known"));
    EXPECT_EQ(hex(), good);
    EXPECT_EQ(hex(DigestMode::kCacheOnly), good);
  }
}

TEST_F(ModelDigestTest, AnUnwritableCacheDoesNotMatter) {
  ::setenv("FLOTILLA_CACHE_DIR", "/proc/nowhere", 1);
  EXPECT_EQ(hex().size(), 64u);
}

TEST_F(ModelDigestTest, TheNumberOfThreadsDoesNotMatterAndProgressReachesTheEnd) {
  std::uint64_t done = 0;
  std::uint64_t total = 1;
  const auto one = model_digest(model.path(), DigestMode::kVerify, {}, 1);
  const auto four = model_digest(
      model.path(), DigestMode::kVerify,
      [&](std::uint64_t d, std::uint64_t t) {
        done = d;
        total = t;
      },
      4);
  ASSERT_TRUE(one.ok() && four.ok());
  EXPECT_EQ(one->hex, four->hex);
  EXPECT_EQ(done, total);
}

TEST_F(ModelDigestTest, ACacheKeepsWhatAnotherProcessStored) {
  DigestCache a(cache.path());
  DigestCache b(cache.path());
  a.put("/a", {1, 2, 3}, std::string(64, 'a'));
  b.put("/b", {1, 2, 3}, std::string(64, 'b'));
  ASSERT_TRUE(a.save().ok());
  ASSERT_TRUE(b.save().ok());
  const DigestCache c(cache.path());
  EXPECT_EQ(c.find("/a", {1, 2, 3}), std::string(64, 'a'));
  EXPECT_EQ(c.find("/b", {1, 2, 3}), std::string(64, 'b'));
  EXPECT_EQ(c.find("/a", {1, 9, 3}), std::nullopt);
}

TEST_F(ModelDigestTest, AScanListsModelsAndSaysWhatIsWrongWithThem) {
  const TestFolder root;
  root.copy(FLOTILLA_SOURCE_DIR "/models/flotilla-tiny", "tiny");
  root.copy(FLOTILLA_SOURCE_DIR "/tests/reference/gemma4-dense", "broken");
  std::filesystem::resize_file(root / "broken/model.safetensors", 100000);
  std::filesystem::create_directory(root / "no-model");
  const auto models = scan_models(root.path());
  ASSERT_TRUE(models.ok());
  ASSERT_EQ(models->size(), 2u);
  const ModelSummary& broken = (*models)[0];
  EXPECT_EQ(broken.name, "broken");
  EXPECT_EQ(broken.family, "gemma4_text");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.problems[0], HasSubstr("model.safetensors"));
  const ModelSummary& tiny = (*models)[1];
  EXPECT_EQ(tiny.name, "tiny");
  EXPECT_TRUE(tiny.ok()) << tiny.problems[0];
  EXPECT_EQ(tiny.quantization, "affine 4-bit, groups of 64");
  EXPECT_EQ(tiny.context_length, 4096);
  EXPECT_EQ(tiny.digest, "");
  EXPECT_EQ(scan_models(root / "tiny")->size(), 1u);
  EXPECT_EQ(scan_models("/nonexistent").error().code, ErrorCode::kNotFound);
}

TEST_F(ModelDigestTest, InspectionListsLogicalTensors) {
  const auto inspection = inspect_model(FLOTILLA_SOURCE_DIR "/models/flotilla-tiny");
  ASSERT_TRUE(inspection.ok()) << inspection.error().message;
  EXPECT_THAT(inspection->notes, IsEmpty());
  EXPECT_EQ(inspection->num_parameters, 13'746'124);
  std::uint64_t bytes = 0;
  bool found = false;
  for (const TensorRow& row : inspection->tensors) {
    bytes += row.num_bytes;
    if (row.name != "language_model.model.layers.0.mlp.down_proj") continue;
    found = true;
    EXPECT_EQ(row.shape, "[256, 1024]");
    EXPECT_EQ(row.format, "affine 4-bit, groups of 64");
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(bytes, inspection->summary.num_bytes);
}

}  // namespace
}  // namespace flotilla::checkpoint
