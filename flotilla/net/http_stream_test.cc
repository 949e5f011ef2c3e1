// Chunked answers, back-pressure, and clients that leave.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "flotilla/net/http.h"
#include "flotilla/net/test_client.h"

namespace flotilla::net {
namespace {

using namespace std::chrono_literals;

class HttpStreamTest : public ::testing::Test {
 protected:
  void serve() {
    server_ = std::make_unique<HttpServer>(
        io_, options_,
        [this](std::shared_ptr<HttpExchange> exchange) {
          std::weak_ptr<HttpExchange> weak = exchange;
          exchange->set_callbacks([this] { ++closed_; }, [this] { ++drained_; });
          std::lock_guard lock(mutex_);
          exchange_ = std::move(exchange);
        },
        [](unsigned status, std::string_view) {
          return HttpResponse{.status = status, .headers = {}, .body = {}};
        });
    ASSERT_TRUE(server_->start().ok());
  }
  // The next exchange that arrives.
  std::shared_ptr<HttpExchange> wait() {
    std::shared_ptr<HttpExchange> out;
    eventually([&] {
      std::lock_guard lock(mutex_);
      out = std::exchange(exchange_, nullptr);
      return out != nullptr;
    });
    return out;
  }

  std::mutex mutex_;
  std::shared_ptr<HttpExchange> exchange_;  // guarded by mutex_
  std::atomic<int> closed_{0}, drained_{0};
  IoRuntime io_{2};
  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;
};

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

TEST_F(HttpStreamTest, AnAnswerOfKnownLengthIsNotChunkedAndKeepsTheConnection) {
  serve();
  TestClient client(server_->port());
  for (int round = 0; round < 2; ++round) {
    client.send(kGet);
    auto exchange = wait();
    ASSERT_TRUE(exchange);
    HttpResponse head;
    head.status = 206;
    head.headers.add("Content-Length", "6");
    exchange->begin_stream(std::move(head));
    const std::string text = client.read_until("\r\n\r\n");
    EXPECT_TRUE(text.starts_with("HTTP/1.1 206 Partial Content\r\n")) << text;
    EXPECT_NE(text.find("Content-Length: 6\r\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("chunked"), std::string::npos) << text;
    exchange->write("abc");
    exchange->write("def");
    exchange->end();
    EXPECT_EQ(client.read_until("def"), "abcdef");
  }
}

TEST_F(HttpStreamTest, WritesChunksAsTheyComeAndKeepsTheConnection) {
  serve();
  TestClient client(server_->port());
  for (int round = 0; round < 2; ++round) {
    client.send(kGet);
    auto exchange = wait();
    ASSERT_TRUE(exchange);
    exchange->begin_stream({});
    EXPECT_NE(client.read_until("\r\n\r\n").find("Transfer-Encoding: chunked"), std::string::npos);
    EXPECT_TRUE(exchange->write("hello"));
    EXPECT_EQ(client.read_until("hello\r\n"), "5\r\nhello\r\n");  // not held back
    exchange->write("");                                          // an empty chunk would be the end
    exchange->write(std::string(17, 'x'));
    exchange->end();
    EXPECT_EQ(client.read_until("\r\n0\r\n\r\n"),
              "11\r\n" + std::string(17, 'x') + "\r\n0\r\n\r\n");
  }
  EXPECT_EQ(closed_, 0);
}

TEST_F(HttpStreamTest, EndsAnHttp10StreamByClosing) {
  serve();
  TestClient client(server_->port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  auto exchange = wait();
  exchange->begin_stream({});
  exchange->write("abc");
  exchange->end();
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.ends_with("\r\n\r\nabc")) << answer;
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
  EXPECT_TRUE(client.saw_end());
}

TEST_F(HttpStreamTest, AClientThatLeavesIsNoticedBeforeAndDuringTheStream) {
  serve();
  for (const bool streaming : {false, true}) {
    for (const bool with_reset : {false, true}) {
      closed_ = 0;
      auto client = std::make_unique<TestClient>(server_->port());
      client->send(kGet);
      auto exchange = wait();
      ASSERT_TRUE(exchange);
      if (streaming) {
        exchange->begin_stream({});
        exchange->write("x");
        client->read_until("x");
      }
      EXPECT_TRUE(exchange->alive());
      const auto left = std::chrono::steady_clock::now();
      if (with_reset) {
        client->reset();
      } else {
        client->close();
      }
      EXPECT_TRUE(eventually([&] { return closed_ == 1; }, 1000ms)) << streaming << with_reset;
      EXPECT_LT(std::chrono::steady_clock::now() - left, 1s);
      EXPECT_FALSE(exchange->alive());
      if (streaming) {
        EXPECT_TRUE(exchange->write("late"));  // does nothing, asks for no pause
      }
    }
  }
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(HttpStreamTest, AClientThatLeavesIsNoticedBehindRequestsItSentAhead) {
  serve();
  auto client = std::make_unique<TestClient>(server_->port());
  client->send(kGet);
  auto exchange = wait();
  client->send(std::string(64 << 10, '\n') + std::string(4096, 'x'));
  std::this_thread::sleep_for(20ms);
  client.reset();
  EXPECT_TRUE(eventually([&] { return closed_ == 1; }, 1500ms));
}

TEST_F(HttpStreamTest, CallbacksSetAfterTheClientLeftStillRun) {
  serve();
  auto client = std::make_unique<TestClient>(server_->port());
  client->send(kGet);
  auto exchange = wait();
  client.reset();
  ASSERT_TRUE(eventually([&] { return !exchange->alive(); }));
  std::atomic<bool> told{false};
  exchange->set_callbacks([&] { told = true; }, nullptr);
  EXPECT_TRUE(eventually([&] { return told.load(); }));
}

TEST_F(HttpStreamTest, ASlowReaderIsReportedAndDrainsOnce) {
  options_.write_queue_bytes = 256 << 10;
  serve();
  TestClient client(server_->port(), /*receive_buffer=*/16 << 10);
  client.send(kGet);
  auto exchange = wait();
  exchange->begin_stream({});
  const std::string piece(64 << 10, 'p');
  std::size_t written = 0;
  int num_pieces = 0;
  while (exchange->write(piece)) {
    written += piece.size();
    ASSERT_LT(++num_pieces, 1000) << "the queue never reported that it is full";
    std::this_thread::sleep_for(1ms);
  }
  written += piece.size();  // the refused piece is queued all the same
  EXPECT_EQ(drained_, 0);
  exchange->end();
  const std::string answer = client.read_until("\r\n0\r\n\r\n", 5000ms);
  EXPECT_GE(answer.size(), written);
  EXPECT_TRUE(eventually([&] { return drained_ == 1; }));
  EXPECT_EQ(closed_, 0);
}

TEST_F(HttpStreamTest, AReaderThatStopsIsCutOffAfterTheWriteTimeout) {
  options_.write_timeout = 150ms;
  serve();
  TestClient client(server_->port(), /*receive_buffer=*/16 << 10);
  client.send(kGet);
  auto exchange = wait();
  exchange->begin_stream({});
  exchange->write(std::string(16 << 20, 'p'));
  EXPECT_TRUE(eventually([&] { return closed_ == 1; }));
}

TEST_F(HttpStreamTest, AbortBreaksTheStreamVisibly) {
  serve();
  for (const char* request : {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"}) {
    TestClient client(server_->port());
    client.send(request);
    auto exchange = wait();
    exchange->begin_stream({});
    exchange->write("abc");
    client.read_until("abc");
    exchange->abort();
    EXPECT_EQ(client.read_all(),
              std::string(request).find("1.1") != std::string::npos ? "\r\n" : "");
    EXPECT_TRUE(client.saw_reset()) << request;
  }
  EXPECT_EQ(closed_, 0) << "abort is not the client's doing";
}

TEST_F(HttpStreamTest, AStreamThatNobodyEndsIsBroken) {
  serve();
  TestClient client(server_->port());
  client.send(kGet);
  auto exchange = wait();
  exchange->begin_stream({});
  client.read_until("\r\n\r\n");
  exchange.reset();
  client.read_all();
  EXPECT_TRUE(client.saw_reset());
}

TEST_F(HttpStreamTest, PiecesFromManyThreadsAllArrive) {
  serve();
  TestClient client(server_->port());
  client.send(kGet);
  auto exchange = wait();
  exchange->begin_stream({});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) exchange->write("abcdefgh");
    });
  }
  for (auto& thread : threads) thread.join();
  exchange->end();
  const std::string answer = client.read_until("\r\n0\r\n\r\n");
  std::size_t count = 0;
  for (std::size_t at = 0; (at = answer.find("8\r\nabcdefgh\r\n", at)) != std::string::npos; ++at)
    ++count;
  EXPECT_EQ(count, 2000u);
}

TEST_F(HttpStreamTest, ClientsThatLeaveAtRandomMomentsLeaveNothingBehind) {
  serve();
  std::atomic<bool> stop{false};
  std::thread answering([&] {
    while (!stop) {
      std::shared_ptr<HttpExchange> exchange;
      {
        std::lock_guard lock(mutex_);
        exchange = std::exchange(exchange_, nullptr);
      }
      if (!exchange) {
        std::this_thread::sleep_for(100us);
        continue;
      }
      exchange->begin_stream({});
      for (int i = 0; i < 20; ++i) exchange->write(std::string(1000, 'z'));
      exchange->end();
    }
  });
  for (int i = 0; i < 200; ++i) {
    TestClient client(server_->port());
    client.send(i % 3 == 0 ? kGet.substr(0, static_cast<std::size_t>(i) % kGet.size()) : kGet);
    if (i % 2) client.read_bytes(static_cast<std::size_t>(i) * 30, 20ms);
    client.reset();
  }
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
  stop = true;
  answering.join();
}

}  // namespace
}  // namespace flotilla::net
