// The way of a model onto a disk, against a server that errs and a disk that fills.
#include "flotilla/download/pull.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "flotilla/base/file.h"
#include "flotilla/base/sha256.h"
#include "flotilla/base/text.h"
#include "flotilla/download/test_server.h"

namespace flotilla::download {
namespace {

namespace fs = std::filesystem;

std::string sum_of(const std::string& text) {
  Sha256 sum;
  sum.update(text);
  return to_hex(sum.finish());
}

std::string noise(std::size_t size, unsigned seed) {
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>((seed = seed * 1664525u + 1013904223u) >> 24);
  return out;
}

class Pull : public ::testing::Test {
 protected:
  Pull() {
    fs::remove_all(dir);
    options.models_dir = dir;
    options.backoff = std::chrono::milliseconds(1);
    options.max_attempts = 3;
    add("config.json", "{}");
    add("model.safetensors", noise(3'000'000, 1));
    add("sub/empty file.json", "");
  }
  ~Pull() override { fs::remove_all(dir); }
  void add(const std::string& path, const std::string& body) {
    const std::string at = "/m/" + path;
    server.put(at, body, "\"" + sum_of(body).substr(0, 8) + "\"");
    auto& files = source.manifest.files;
    std::erase_if(files, [&](const auto& file) { return file.path == path; });
    files.push_back({path, body.size(), sum_of(body), server.url() + "/m/" + escape_path(path)});
    bodies[path] = body;
    source.manifest.model = "tiny";
    source.manifest.digest = digest_of(files);
  }
  // All is there as it should be, and nothing else.
  void expect_whole() {
    std::size_t found = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir + "/tiny")) {
      if (entry.is_directory()) continue;
      ++found;
      const std::string path = entry.path().lexically_relative(dir + "/tiny").string();
      ASSERT_TRUE(bodies.contains(path)) << path;
      EXPECT_TRUE(*read_file(entry.path().string(), 1u << 30) == bodies[path]) << path;
    }
    EXPECT_EQ(found, bodies.size());
    for (const auto& entry : fs::directory_iterator(dir))
      EXPECT_EQ(entry.path().filename(), "tiny");
  }
  std::uint64_t part_size() {
    std::error_code ec;
    const auto size = fs::file_size(dir + "/.tiny.pull/model.safetensors.part", ec);
    return ec ? 0 : size;
  }
  // Leaves so much of the weights, as a pull that was killed would.
  void leave(std::size_t bytes, const std::string& tag) {
    options.stop = [this, bytes] { return part_size() >= bytes; };
    server.on([](const auto& request, int, auto& exchange) {
      if (!request.path.ends_with("safetensors")) return false;
      net::HttpResponse head;
      head.headers.add("Content-Length", "3000000");
      head.headers.add("Connection", "close");
      exchange.begin_stream(head);
      exchange.write(noise(3'000'000, 1).substr(0, 1'000'000));
      exchange.end();
      return true;
    });
    options.max_attempts = 1;
    (void)pull(source, options);
    server.on(nullptr);
    options.stop = {};
    options.max_attempts = 3;
    const std::string part = dir + "/.tiny.pull/model.safetensors.part";
    std::ofstream(part, std::ios::binary) << bodies["model.safetensors"].substr(0, bytes);
    std::ofstream(part + ".tag", std::ios::binary) << tag;
  }

  TestServer server;
  Source source;
  PullOptions options;
  std::map<std::string, std::string> bodies;
  const std::string dir = ::testing::TempDir() + "/flotilla pull " + std::to_string(::getpid());
};

TEST_F(Pull, PutsAllFilesInPlaceAtOnce) {
  std::uint64_t last = 0, total = 0;
  options.on_progress = [&](std::uint64_t done, std::uint64_t all) {
    last = done;
    total = all;
  };
  const auto pulled = pull(source, options);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  expect_whole();
  EXPECT_EQ(pulled->manifest.digest, source.manifest.digest);
  EXPECT_EQ(pulled->fetched_bytes, 3'000'002u);
  EXPECT_EQ(last, 3'000'002u);
  EXPECT_EQ(total, 3'000'002u);
  EXPECT_EQ(server.num_requests("/m/sub/empty file.json"), 0);  // nothing to ask for
  EXPECT_EQ(pull(source, options).error().code, ErrorCode::kAlreadyExists);
}

TEST_F(Pull, AConnectionThatIsCutGoesOnWhereItWas) {
  server.on([](const auto& request, int n, auto& exchange) {
    if (!request.path.ends_with("safetensors") || n > 0) return false;
    net::HttpResponse head;
    head.headers.add("Content-Length", "3000000");
    head.headers.add("Connection", "close");
    head.headers.add("ETag", "\"" + sum_of(noise(3'000'000, 1)).substr(0, 8) + "\"");
    exchange.begin_stream(head);
    exchange.write(noise(3'000'000, 1).substr(0, 1'000'000));
    exchange.end();  // fewer than promised
    return true;
  });
  const auto pulled = pull(source, options);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  expect_whole();
}

TEST_F(Pull, ResumesWithoutFetchingTwice) {
  leave(2'000'000, server.page("/m/model.safetensors").etag);
  const auto pulled = pull(source, options);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(pulled->fetched_bytes, 1'000'000u);
  expect_whole();
}

TEST_F(Pull, AServerWithoutRangesIsNotAppended) {
  leave(2'000'000, "");
  server.page("/m/model.safetensors").ranges = false;
  const auto pulled = pull(source, options);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(pulled->fetched_bytes, 3'000'000u);
  expect_whole();
}

TEST_F(Pull, AnotherETagStartsTheFileAnew) {
  leave(2'000'000, "\"of yesterday\"");
  const auto pulled = pull(source, options);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(pulled->fetched_bytes, 3'000'000u);
  expect_whole();
}

TEST_F(Pull, OneWrongByteCostsOneFile) {
  server.on([&](const auto& request, int n, auto& exchange) {
    if (!request.path.ends_with("safetensors") || n > 0) return false;
    net::HttpResponse out;
    out.body = noise(3'000'000, 1);
    out.body[2'000'000] ^= 1;
    exchange.send(out);
    return true;
  });
  const auto pulled = pull(source, options);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(server.num_requests("/m/config.json"), 1);
  EXPECT_EQ(server.num_requests("/m/model.safetensors"), 2);
  expect_whole();
}

TEST_F(Pull, AFileThatStaysWrongIsNeverUsed) {
  std::string& body = server.page("/m/model.safetensors").body;
  body[7] ^= 1;
  const auto pulled = pull(source, options);
  EXPECT_EQ(pulled.error().code, ErrorCode::kDataLoss);
  EXPECT_NE(pulled.error().message.find("model.safetensors"), std::string::npos);
  EXPECT_FALSE(fs::exists(dir + "/tiny"));
  EXPECT_EQ(part_size(), 0u);
  body[7] ^= 1;  // mended: what was right is still there
  EXPECT_TRUE(pull(source, options).ok());
  EXPECT_EQ(server.num_requests("/m/config.json"), 1);
  expect_whole();
}

TEST_F(Pull, AnotherLengthThanTheManifestsIsAnError) {
  server.page("/m/model.safetensors").body += "x";
  const auto pulled = pull(source, options);
  EXPECT_EQ(pulled.error().code, ErrorCode::kDataLoss);
  EXPECT_NE(pulled.error().message.find("3000001"), std::string::npos) << pulled.error().message;
}

TEST_F(Pull, ARangeBeyondTheEndStartsAnew) {
  leave(2'999'999, "");
  server.on([&](const auto& request, int n, auto& exchange) {
    if (!request.path.ends_with("safetensors") || !request.headers.find("Range")) return false;
    (void)n;
    net::HttpResponse out;
    out.status = 416;
    exchange.send(out);
    return true;
  });
  const auto pulled = pull(source, options);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  expect_whole();
}

TEST_F(Pull, ABusyServerIsAskedAgainAndAnotherErrorIsNot) {
  server.on([&](const auto& request, int n, auto& exchange) {
    if (!request.path.ends_with("config.json") || n > 1) return false;
    net::HttpResponse out;
    out.status = 503;
    exchange.send(out);
    return true;
  });
  EXPECT_TRUE(pull(source, options).ok());
  options.replace = true;
  server.on([&](const auto&, int, auto& exchange) {
    net::HttpResponse out;
    out.status = 403;
    exchange.send(out);
    return true;
  });
  EXPECT_EQ(pull(source, options).error().code, ErrorCode::kPermissionDenied);
  server.on([&](const auto&, int, auto& exchange) {
    net::HttpResponse out;
    out.status = 500;
    exchange.send(out);
    return true;
  });
  const auto pulled = pull(source, options);
  EXPECT_EQ(pulled.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(pulled.error().message.find("given up after 3"), std::string::npos);
}

TEST_F(Pull, TooLittleDiskIsSaidBeforeAByteIsFetched) {
  options.free_bytes = [](const std::string&) { return std::optional<std::uint64_t>(1'000'000); };
  const auto pulled = pull(source, options);
  EXPECT_EQ(pulled.error().code, ErrorCode::kResourceExhausted);
  for (const char* number : {"3000002", "1000000"})
    EXPECT_NE(pulled.error().message.find(number), std::string::npos) << pulled.error().message;
  EXPECT_TRUE(server.requests().empty());
  options.free_bytes = {};
  EXPECT_TRUE(pull(source, options).ok());
}

TEST_F(Pull, ADiskThatFillsMidwayLeavesWhatWasFetched) {
  std::atomic<std::int64_t> room{1'500'000};
  options.write = [&](int fd, const void* data, std::size_t size) -> std::int64_t {
    const std::int64_t n = std::min<std::int64_t>(static_cast<std::int64_t>(size), room);
    if (n == 0 && size > 0) {
      errno = ENOSPC;
      return -1;
    }
    room -= n;
    return ::write(fd, data, static_cast<std::size_t>(n));
  };
  const auto pulled = pull(source, options);
  EXPECT_EQ(pulled.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(pulled.error().message.find("No space left"), std::string::npos);
  EXPECT_NE(pulled.error().message.find("is kept"), std::string::npos);
  EXPECT_FALSE(fs::exists(dir + "/tiny"));
  const std::uint64_t kept = part_size();
  EXPECT_GT(kept, 1'000'000u);
  room = std::int64_t{1} << 40;
  const auto again = pull(source, options);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_LE(again->fetched_bytes, 3'000'002 - kept);
  expect_whole();
}

TEST_F(Pull, OnlyOneAtATimeOfAModel) {
  fs::create_directories(dir);
  const int fd = ::open((dir + "/.tiny.lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  const auto pulled = pull(source, options);
  EXPECT_EQ(pulled.error().code, ErrorCode::kAlreadyExists);
  EXPECT_NE(pulled.error().message.find("another pull"), std::string::npos);
  ::close(fd);
  EXPECT_TRUE(pull(source, options).ok());
}

TEST_F(Pull, ReplacesAnOlderModelAtOnceAndKeepsWhatIsTheSame) {
  ASSERT_TRUE(pull(source, options).ok());
  add("config.json", "{\"new\":1}");
  EXPECT_EQ(pull(source, options).error().code, ErrorCode::kAlreadyExists);
  options.replace = true;
  ASSERT_TRUE(pull(source, options).ok());
  expect_whole();
}

TEST_F(Pull, AFolderThatAppearedMeanwhileIsNotTouched) {
  options.on_progress = [&](std::uint64_t, std::uint64_t) {
    fs::create_directories(dir + "/tiny");
    std::ofstream(dir + "/tiny/mine") << "mine";
  };
  const auto pulled = pull(source, options);
  ASSERT_FALSE(pulled.ok());
  EXPECT_TRUE(fs::exists(dir + "/tiny/mine"));
  fs::remove_all(dir + "/tiny");
  options.on_progress = {};
  const auto again = pull(source, options);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->fetched_bytes, 0u) << "all of it was kept";
  expect_whole();
}

TEST_F(Pull, WhatAnotherManifestLeftIsKeptWhereItIsTheSame) {
  leave(2'000'000, server.page("/m/model.safetensors").etag);
  add("config.json", "{\"new\":1}");
  ASSERT_TRUE(pull(source, options).ok());
  expect_whole();
  fs::remove_all(dir + "/tiny");
  leave(2'000'000, server.page("/m/model.safetensors").etag);
  add("model.safetensors", noise(3'000'000, 2));  // of the same length
  const auto pulled = pull(source, options);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_GE(pulled->fetched_bytes, 3'000'000u);
  expect_whole();
}

TEST_F(Pull, StopsWhenAskedAndGoesOnLater) {
  std::atomic<bool> stop{false};
  options.stop = [&] { return stop.load(); };
  options.on_progress = [&](std::uint64_t, std::uint64_t) { stop = true; };
  EXPECT_EQ(pull(source, options).error().code, ErrorCode::kCancelled);
  options.on_progress = {};
  stop = false;
  EXPECT_TRUE(pull(source, options).ok());
  expect_whole();
}

TEST_F(Pull, SumsThatNobodyKnewAreKnownAfterwards) {
  for (auto& file : source.manifest.files) file.sha256.clear();
  const std::string digest = std::exchange(source.manifest.digest, "");
  const auto pulled = pull(source, options);
  ASSERT_TRUE(pulled.ok()) << pulled.error().message;
  EXPECT_EQ(pulled->manifest.digest, digest);
}

TEST_F(Pull, AManifestThatLeadsElsewhereIsRefused) {
  source.manifest.files[0].path = "../escaped";
  source.manifest.digest = digest_of(source.manifest.files);
  EXPECT_FALSE(pull(source, options).ok());
  EXPECT_FALSE(fs::exists(::testing::TempDir() + "/escaped"));
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(Pull, TokensGoWhereTheyBelongOnly) {
  source.tokens = {{server.url(), "the-secret"}};
  ASSERT_TRUE(pull(source, options).ok());
  for (const auto& request : server.requests())
    EXPECT_EQ(request.headers.find("Authorization"), "Bearer the-secret");
  EXPECT_EQ(source.token_for("http://127.0.0.1:1/x"), "");
  EXPECT_EQ(origin_of("http://a@b/c"), "");
  EXPECT_EQ(origin_of("HTTPS://Host:1/x?y"), "https://host:1");
  EXPECT_EQ(origin_of("file:///etc/passwd"), "");
  const auto open = fetch({.url = "http://192.0.2.1/x", .token = "t"}, {}, {});
  EXPECT_EQ(open.error().code, ErrorCode::kInvalidArgument);  // no TLS
}

}  // namespace
}  // namespace flotilla::download
