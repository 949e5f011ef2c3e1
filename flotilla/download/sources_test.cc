#include "flotilla/download/sources.h"

#include <gtest/gtest.h>

#include "flotilla/base/sha256.h"
#include "flotilla/base/text.h"
#include "flotilla/download/test_server.h"

namespace flotilla::download {
namespace {

using Names = std::vector<std::string>;

std::string sum_of(const std::string& text) {
  Sha256 sum;
  sum.update(text);
  return to_hex(sum.finish());
}

TEST(ChooseFiles, AreThoseThatMakeUpTheModel) {
  EXPECT_EQ(*choose_files({"README.md", "config.json", "model.safetensors", "onnx/x.safetensors",
                           "tokenizer.json", ".gitattributes"},
                          ""),
            (Names{"config.json", "model.safetensors", "tokenizer.json"}));
  const std::string index = R"({"weight_map":{"a":"x-1.safetensors","b":"x-2.safetensors"}})";
  EXPECT_EQ(
      *choose_files({"config.json", "x-1.safetensors", "x-2.safetensors", "stray.safetensors",
                     "model.safetensors.index.json"},
                    index),
      (Names{"config.json", "model.safetensors.index.json", "x-1.safetensors", "x-2.safetensors"}));
  EXPECT_FALSE(choose_files({"config.json", "x-1.safetensors"}, index).ok());  // one is missing
  EXPECT_FALSE(choose_files({"config.json"}, R"({"weight_map":{"a":"../x.safetensors"}})").ok());
  EXPECT_FALSE(choose_files({"config.json", "a.safetensors", "b.safetensors"}, "").ok());
  EXPECT_FALSE(choose_files({"config.json", "pytorch_model.bin"}, "").ok());
  EXPECT_FALSE(choose_files({"model.safetensors"}, "").ok());
}

TEST(HubName, HasOwnerRepositoryAndPerhapsARevision) {
  const auto read = parse_hub_name("hf:org/model-1@refs/pr/3");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->repo, "org/model-1");
  EXPECT_EQ(read->revision, "refs/pr/3");
  EXPECT_EQ(parse_hub_name("hf:a/b")->revision, "main");
  for (const char* bad : {"hf:a", "hf:a/b/c", "hf:../b", "hf:a/b@", "hf:a/b@../x", "hf:a b/c"})
    EXPECT_FALSE(parse_hub_name(bad).ok()) << bad;
}

TEST(Hub, OneCommitIsTakenPageByPage) {
  TestServer server;
  const std::string api = "/api/models/org/tiny", place = "/org/tiny/resolve/abc123/";
  server.put(api + "/revision/main", R"({"sha":"abc123"})");
  server.put(api + "/tree/abc123", R"([{"type":"directory","path":"x","size":0},)"
                                   R"({"type":"file","path":"config.json","size":24,"oid":"1"}])");
  server.page(api + "/tree/abc123").next = server.url() + "/more";
  const std::string weights = "weights";
  server.put("/more",
             R"([{"type":"file","path":"model.safetensors","size":7,"oid":"2","lfs":{"oid":")" +
                 sum_of(weights) +
                 R"(","size":7}},)"
                 R"({"type":"file","path":"README.md","size":9,"oid":"3"}])");
  server.put(place + "config.json", R"({"model_type":"gemma4"}  )");
  server.put(place + "model.safetensors", weights);
  auto source = find_source(HubSource{.repo = "org/tiny", .hub = server.url(), .token = "t"}, {});
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->manifest.model, "tiny");
  ASSERT_EQ(source->manifest.files.size(), 2u);
  EXPECT_EQ(source->manifest.files[0].sha256, "");
  EXPECT_EQ(source->manifest.files[1].sha256, sum_of(weights));
  EXPECT_EQ(source->manifest.files[1].url, server.url() + place + "model.safetensors");
  EXPECT_EQ(source->token_for(source->manifest.files[1].url), "t");
  EXPECT_FALSE(fill_in_sums(*source, {}, {}).ok());  // another length than listed
  server.page(place + "config.json").body.pop_back();
  ASSERT_TRUE(fill_in_sums(*source, {}, {}).ok());
  EXPECT_EQ(source->manifest.digest, digest_of(source->manifest.files));
  EXPECT_TRUE(check(source->manifest).ok());
}

TEST(Hub, AllFilesMayHaveSums) {
  TestServer server;
  const std::string api = "/api/models/org/tiny", config = R"({"model_type":"gemma4"})";
  const auto listed = [](const std::string& path, const std::string& body) {
    return R"({"type":"file","path":")" + path + R"(","size":)" + std::to_string(body.size()) +
           R"(,"oid":"1","lfs":{"oid":")" + sum_of(body) + R"(","size":)" +
           std::to_string(body.size()) + "}}";
  };
  server.put(api + "/revision/main", R"({"sha":"abc123"})");
  server.put(api + "/tree/abc123",
             "[" + listed("config.json", config) + "," + listed("model.safetensors", "w") + "]");
  const auto source =
      find_source(HubSource{.repo = "org/tiny", .hub = server.url(), .token = ""}, {});
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->manifest.digest, digest_of(source->manifest.files));
}

TEST(Hub, ATokenGoesToThisMachineAloneWithoutTls) {
  for (const char* url :
       {"http://localhost.example.invalid/x", "http://127.0.0.1.example.invalid/x"}) {
    const auto got = fetch_text({.url = url, .token = "t"}, {}, 100);
    ASSERT_FALSE(got.ok());
    EXPECT_NE(got.error().message.find("without TLS"), std::string::npos) << url;
  }
}

TEST(Hub, APageOfAnotherServerEndsIt) {
  TestServer server, other;
  server.put("/api/models/org/tiny/revision/main", R"({"sha":"abc"})");
  server.put("/api/models/org/tiny/tree/abc", "[]");
  server.page("/api/models/org/tiny/tree/abc").next = other.url() + "/x";
  EXPECT_FALSE(find_source(HubSource{.repo = "org/tiny", .hub = server.url()}, {}).ok());
  EXPECT_TRUE(other.requests().empty());
}

TEST(Folder, FilesAreAskedForOneByOne) {
  TestServer server;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
    server.put(std::string("/models/tiny/") + name, name);
  const auto source = find_source(FolderSource{server.url() + "/models/tiny/"}, {});
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->manifest.model, "tiny");
  EXPECT_EQ(source->manifest.files.size(), 3u);
  EXPECT_EQ(source->manifest.bytes(), 11u + 17u + 14u);
  EXPECT_EQ(find_source(FolderSource{server.url() + "/nothing"}, {}).error().code,
            ErrorCode::kNotFound);
}

TEST(Folder, AManifestInItCounts) {
  TestServer server;
  Manifest manifest{"named", 3, {}, {{"config.json", 2, sum_of("{}"), {}}}};
  manifest.digest = digest_of(manifest.files);
  server.put("/x/flotilla-manifest.json", render_manifest(manifest));
  const auto source = find_source(FolderSource{server.url() + "/x"}, {});
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->manifest.model, "named");
  EXPECT_EQ(source->manifest.files[0].url, server.url() + "/x/config.json");
}

TEST(CoordinatorSource, ItsOwnFilesGetItsKeyAndOthersDoNot) {
  TestServer server;
  Manifest manifest{"m",
                    2,
                    {},
                    {{"a.json", 1, sum_of("a"), "/v1/catalog/file?digest=d&path=a.json"},
                     {"b.json", 1, sum_of("b"), "https://hub.example/b.json"}}};
  manifest.digest = digest_of(manifest.files);
  server.put("/v1/catalog/manifest", render_manifest(manifest));
  const auto source = find_source(CoordinatorSource{.url = server.url() + "/",
                                                    .key = "k",
                                                    .model = "m",
                                                    .version = 2,
                                                    .hub = "https://hub.example",
                                                    .hub_token = "t"},
                                  {});
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(server.requests().at(0).query, "model=m&version=2");
  EXPECT_EQ(source->token_for(source->manifest.files[0].url), "k");
  EXPECT_EQ(source->token_for(source->manifest.files[1].url), "t");
  EXPECT_EQ(source->token_for("https://elsewhere.example/b.json"), "");
}

}  // namespace
}  // namespace flotilla::download
