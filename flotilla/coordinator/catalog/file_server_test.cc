#include "flotilla/coordinator/catalog/file_server.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>

namespace flotilla::coordinator {
namespace {

// Takes what is written until `room` is used up; then only after a drain.
class SlowReader final : public net::HttpExchange {
 public:
  const net::HttpRequest& request() const override { return asked; }
  void send(net::HttpResponse) override {}
  void begin_stream(net::HttpResponse) override {}
  bool write(std::string piece) override {
    std::lock_guard lock(mutex);
    largest = std::max(largest, piece.size());
    body += piece;
    ++num_writes;
    changed.notify_all();
    return !slow;
  }
  void end() override {
    std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }
  void abort() override {
    std::lock_guard lock(mutex);
    aborted = true;
    changed.notify_all();
  }
  bool alive() const override { return is_alive; }
  void set_callbacks(std::function<void()>, std::function<void()> on_drained) override {
    drained = std::move(on_drained);
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), condition);
  }

  net::HttpRequest asked{.method = "GET", .path = "/", .query = {}, .peer = {}};
  std::function<void()> drained;
  std::mutex mutex;
  std::condition_variable changed;
  std::string body;
  std::size_t largest = 0, num_writes = 0;
  bool slow = false, ended = false, aborted = false;
  std::atomic<bool> is_alive{true};
};

class Files : public ::testing::Test {
 protected:
  Files() {
    for (std::size_t i = 0; i < 1'000'003; ++i) content += static_cast<char>('a' + i % 26);
    std::ofstream(path, std::ios::binary) << content;
  }
  ~Files() override {
    std::remove(path.c_str());
    // A connection lets go of its callbacks when the answer is over.
    for (const auto& reader : readers) reader->drained = nullptr;
  }
  net::HttpResponse ask(const std::shared_ptr<SlowReader>& reader, std::uint64_t size) {
    readers.push_back(reader);
    net::HttpResponse out;
    const auto take = [&](net::HttpResponse response) { out = std::move(response); };
    server.serve({path, size, "\"sum\""}, reader, take, take);
    return out;
  }
  const std::string path = ::testing::TempDir() + "/flotilla served " + std::to_string(::getpid());
  std::string content;
  std::vector<std::shared_ptr<SlowReader>> readers;
  FileServer server;
};

TEST(ByteRange, IsReadAsHttpMeansIt) {
  const auto range = [](const char* text) { return parse_range(text, 10); };
  EXPECT_EQ(*range("bytes=0-3"), (ByteRange{0, 3}));
  EXPECT_EQ(*range("bytes=4-"), (ByteRange{4, 9}));
  EXPECT_EQ(*range("bytes=4-400"), (ByteRange{4, 9}));
  EXPECT_EQ(*range("bytes=-3"), (ByteRange{7, 9}));
  EXPECT_EQ(*range("bytes=-300"), (ByteRange{0, 9}));
  for (const char* whole : {"bytes=", "bytes=-", "bytes=5-3", "bytes=a-b", "bytes=1-2,4-5", "x=1-2",
                            "bytes=1-x", "bytes=+1-2", "bytes=99999999999999999999-"})
    EXPECT_EQ(*range(whole), std::nullopt) << whole;
  EXPECT_FALSE(range("bytes=10-").ok());
  EXPECT_FALSE(range("bytes=-0").ok());
  EXPECT_FALSE(parse_range("bytes=0-", 0).ok());
  EXPECT_EQ(*parse_range(std::nullopt, 10), std::nullopt);
}

TEST_F(Files, AreSentWholeInSmallPieces) {
  auto reader = std::make_shared<SlowReader>();
  const auto head = ask(reader, content.size());
  EXPECT_EQ(head.status, 200u);
  EXPECT_EQ(head.headers.find("Content-Length"), std::to_string(content.size()));
  ASSERT_TRUE(reader->wait([&] { return reader->ended; }));
  EXPECT_EQ(reader->body, content);
  EXPECT_LE(reader->largest, 256u << 10);
}

TEST_F(Files, ASlowReaderIsSentNothingUntilItHasRoom) {
  auto reader = std::make_shared<SlowReader>();
  reader->slow = true;
  ask(reader, content.size());
  for (std::size_t n = 1; n <= 3; ++n) {
    ASSERT_TRUE(reader->wait([&] { return reader->num_writes == n; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(reader->num_writes, n);
    reader->drained();
  }
  ASSERT_TRUE(reader->wait([&] { return reader->ended; }));
  EXPECT_EQ(reader->body, content);
}

TEST_F(Files, ARangeIsSentOnlyOfTheSameFile) {
  auto reader = std::make_shared<SlowReader>();
  reader->asked.headers.add("Range", "bytes=1000000-");
  reader->asked.headers.add("If-Range", "\"sum\"");
  const auto head = ask(reader, content.size());
  EXPECT_EQ(head.status, 206u);
  EXPECT_EQ(head.headers.find("Content-Range"), "bytes 1000000-1000002/1000003");
  ASSERT_TRUE(reader->wait([&] { return reader->ended; }));
  EXPECT_EQ(reader->body, content.substr(1'000'000));

  auto other = std::make_shared<SlowReader>();
  other->asked.headers.add("Range", "bytes=1000000-");
  other->asked.headers.add("If-Range", "\"another sum\"");
  EXPECT_EQ(ask(other, content.size()).status, 200u);
  ASSERT_TRUE(other->wait([&] { return other->ended; }));
  EXPECT_EQ(other->body.size(), content.size());

  auto beyond = std::make_shared<SlowReader>();
  beyond->asked.headers.add("Range", "bytes=1000003-");
  const auto refused = ask(beyond, content.size());
  EXPECT_EQ(refused.status, 416u);
  EXPECT_EQ(refused.headers.find("Content-Range"), "bytes */1000003");
}

TEST_F(Files, AFileThatChangedIsNotServed) {
  auto reader = std::make_shared<SlowReader>();
  EXPECT_EQ(ask(reader, content.size() + 1).status, 503u);
  EXPECT_EQ(reader->num_writes, 0u);
}

TEST_F(Files, AFileThatShrinksWhileItIsSentBreaksTheAnswerOff) {
  auto reader = std::make_shared<SlowReader>();
  reader->slow = true;
  ask(reader, content.size());
  ASSERT_TRUE(reader->wait([&] { return reader->num_writes == 1; }));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "x";
  reader->drained();
  ASSERT_TRUE(reader->wait([&] { return reader->aborted; }));
  EXPECT_FALSE(reader->ended);
}

TEST_F(Files, WhoLeavesCostsNothingMore) {
  auto reader = std::make_shared<SlowReader>();
  reader->slow = true;
  ask(reader, content.size());
  ASSERT_TRUE(reader->wait([&] { return reader->num_writes == 1; }));
  EXPECT_EQ(server.num_transfers(), 1u);
  reader->is_alive = false;
  reader->drained = nullptr;  // as the connection lets go of it
  for (int i = 0; i < 1'000 && server.num_transfers() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(server.num_transfers(), 0u);
}

}  // namespace
}  // namespace flotilla::coordinator
