#include "flotilla/download/manifest.h"

#include <gtest/gtest.h>

namespace flotilla::download {
namespace {

ManifestFile file(const std::string& path, std::uint64_t size = 3) {
  return {path, size, std::string(64, 'a'), {}};
}

Manifest manifest(std::vector<ManifestFile> files) {
  Manifest out{"m", 1, {}, std::move(files)};
  out.digest = digest_of(out.files);
  return out;
}

TEST(Manifest, SurvivesItsJson) {
  Manifest made = manifest({file("config.json"), file("sub folder/Größe.safetensors", 0)});
  made.files[0].url = "/v1/x?y=1";
  const auto read = parse_manifest(render_manifest(made));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->digest, made.digest);
  ASSERT_EQ(read->files.size(), 2u);
  EXPECT_EQ(read->files[0].url, "/v1/x?y=1");
  EXPECT_EQ(read->files[1].path, "sub folder/Größe.safetensors");
  EXPECT_EQ(read->bytes(), 3u);
}

TEST(Manifest, PathsStayInTheirFolder) {
  for (const char* path : {"", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", ".hidden",
                           "a/.git/x", "a\\b", "C:x", "a\nb", "a\x7f", "x.part", "\xff\xfe"}) {
    EXPECT_FALSE(check_file_path(path).ok()) << path;
    EXPECT_FALSE(check(manifest({file(path)})).ok()) << path;
  }
  EXPECT_FALSE(check_file_path(std::string_view("a\0b", 3)).ok());
  EXPECT_FALSE(check_file_path(std::string(241, 'x')).ok());
  for (const char* path : {"a", "a b", "a..b", "model-00001-of-00002.safetensors", "x/y/z", "ü"})
    EXPECT_TRUE(check_file_path(path).ok()) << path;
}

TEST(Manifest, NoFileTwiceAndNoneInsideAnother) {
  EXPECT_FALSE(check(manifest({file("a"), file("a")})).ok());
  EXPECT_FALSE(check(manifest({file("a"), file("a b"), file("a/b")})).ok());
  EXPECT_TRUE(check(manifest({file("ab"), file("a/b")})).ok());
  EXPECT_FALSE(check(manifest({})).ok());
}

TEST(Manifest, TheDigestIsThatOfItsFiles) {
  Manifest made = manifest({file("a"), file("b")});
  EXPECT_TRUE(check(made).ok());
  made.files[1].size = 4;
  EXPECT_EQ(check(made).error().code, ErrorCode::kDataLoss);
  made.files[1].sha256.clear();  // a digest of sums that nobody knows is made up
  EXPECT_FALSE(check(made).ok());
  made.digest.clear();
  EXPECT_TRUE(check(made).ok());
}

TEST(Manifest, HasLimits) {
  EXPECT_EQ(check(manifest({file("a", kMaxModelBytes), file("b", 1)})).error().code,
            ErrorCode::kTooLarge);
  std::vector<ManifestFile> many;
  for (std::size_t i = 0; i <= kMaxFiles; ++i) many.push_back(file("f" + std::to_string(i)));
  EXPECT_FALSE(check(manifest(many)).ok());
  EXPECT_FALSE(parse_manifest(R"({"model":"m","files":[{"path":"a","size":-1}]})").ok());
  EXPECT_FALSE(parse_manifest(R"({"model":"../m","files":[{"path":"a","size":1}]})").ok());
  EXPECT_FALSE(
      parse_manifest(R"({"model":"m","files":[{"path":"a","size":1,"sha256":"AB"}]})").ok());
  EXPECT_FALSE(parse_manifest("[]").ok());
}

}  // namespace
}  // namespace flotilla::download
