#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "flotilla/checkpoint/checkpoint.h"
#include "flotilla/checkpoint/synth_writer.h"
#include "flotilla/checkpoint/test_folder.h"

namespace flotilla::checkpoint {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

SynthShape small() {
  SynthShape shape = *synth_preset("tiny");
  shape.layers = 3;
  shape.vocab = 256;
  return shape;
}

TEST(Synth, SameSeedGivesTheSameBytesWithAnyNumberOfThreads) {
  const TestFolder one, two, three;
  const auto write = [](const TestFolder& folder, std::uint64_t seed, int threads) {
    return write_synthetic(small(), {.folder = folder.path() + "/model",
                                     .shard_bytes = 300'000,
                                     .seed = seed,
                                     .num_threads = threads});
  };
  const auto written = write(one, 1, 1);
  ASSERT_TRUE(written.ok()) << written.error().message;
  ASSERT_GT(written->num_files, 2u);
  ASSERT_TRUE(write(two, 1, 4).ok());
  ASSERT_TRUE(write(three, 2, 4).ok());
  bool differs = false;
  for (const auto& entry : std::filesystem::directory_iterator(one.path() + "/model")) {
    const std::string name = "/model/" + entry.path().filename().string();
    EXPECT_EQ(read_all(one.path() + name), read_all(two.path() + name)) << name;
    differs = differs || read_all(one.path() + name) != read_all(three.path() + name);
  }
  EXPECT_TRUE(differs);
}

TEST(Synth, WhatIsWrittenIsACheckpoint) {
  const TestFolder folder;
  std::uint64_t last = 0;
  const auto written = write_synthetic(
      small(),
      {.folder = folder.path() + "/model", .progress = [&](std::uint64_t done, std::uint64_t) {
         EXPECT_GT(done, last);
         last = done;
       }});
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(last, written->num_bytes);
  const auto checkpoint = Checkpoint::open(folder.path() + "/model");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensor_bytes(), written->num_bytes);
  EXPECT_EQ(write_synthetic(small(), {.folder = folder.path() + "/model"}).error().code,
            ErrorCode::kAlreadyExists);
}

TEST(Synth, SizesThatDoNotFitAreNamed) {
  SynthShape shape = small();
  shape.mlp = 100;
  const auto written = write_synthetic(shape, {.folder = "/nonexistent/x"});
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find("down_proj"), std::string::npos)
      << written.error().message;
}

}  // namespace
}  // namespace flotilla::checkpoint
