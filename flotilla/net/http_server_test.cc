#include "flotilla/net/http.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "flotilla/net/file_limit.h"
#include "flotilla/net/test_client.h"

namespace flotilla::net {
namespace {

using namespace std::chrono_literals;
using ::testing::Test;

HttpResponse sentence(unsigned status, std::string_view message) {
  HttpResponse response;
  response.status = status;
  response.headers.add("Content-Type", "text/plain");
  response.body = "error: " + std::string(message);
  return response;
}

class HttpServerTest : public Test {
 protected:
  void serve(HttpHandler handler) {
    server_ = std::make_unique<HttpServer>(io_, options_, std::move(handler), sentence);
    if (head_check_) server_->set_head_check(head_check_);
    const Status started = server_->start();
    ASSERT_TRUE(started.ok()) << to_string(started.error());
  }
  // Answers "METHOD path|query|body".
  void serve_echo() {
    serve([](std::shared_ptr<HttpExchange> exchange) {
      const HttpRequest& r = exchange->request();
      HttpResponse response;
      response.body = r.method + " " + r.path + "|" + r.query + "|" + r.body;
      exchange->send(std::move(response));
    });
  }

  IoRuntime io_{2};
  HttpServerOptions options_;
  HttpHeadCheck head_check_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersSeveralRequestsOnOneConnection) {
  serve_echo();
  TestClient client(server_->port());
  client.send("GET /a%2Fb?x=1 HTTP/1.1\r\nHost: h\r\n\r\n");
  std::string answer = client.read_response();
  EXPECT_EQ(answer.rfind("HTTP/1.1 200 OK\r\n", 0), 0u) << answer;
  EXPECT_NE(answer.find("\r\nDate: "), std::string::npos);
  EXPECT_NE(answer.find("\r\nContent-Length: 13\r\n"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("Connection:"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("GET /a/b|x=1|"));
  client.send("POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz");
  EXPECT_TRUE(client.read_response().ends_with("POST /c||xyz"));
  client.send(
      "POST /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
  EXPECT_TRUE(client.read_response().ends_with("POST /d||abc"));
  EXPECT_EQ(server_->num_connections(), 1u);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  serve_echo();
  TestClient client(server_->port());
  std::string all;
  for (int i = 0; i < 200; ++i) all += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: h\r\n\r\n";
  client.send(all);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(client.read_response().ends_with("GET /" + std::to_string(i) + "||"));
  }
}

TEST_F(HttpServerTest, LeavesTheBodyOutForHead) {
  serve_echo();
  TestClient client(server_->port());
  client.send("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\nGET /y HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 9"), std::string::npos) << head;
  const std::string next = client.read_response();
  EXPECT_TRUE(next.starts_with("HTTP/1.1 200")) << next;
  EXPECT_TRUE(next.ends_with("GET /y||")) << next;
}

TEST_F(HttpServerTest, ARefusedHeadIsAnsweredBeforeItsBodyIsRead) {
  std::atomic<int> handled = 0;
  head_check_ = [](const HttpRequest& head) -> std::optional<HttpResponse> {
    if (head.headers.find("x-key")) return std::nullopt;
    return HttpResponse{.status = 401, .headers = {}, .body = "no key"};
  };
  serve([&](std::shared_ptr<HttpExchange> exchange) {
    ++handled;
    exchange->send({.status = 200});
  });
  for (const char* expect : {"", "Expect: 100-continue\r\n"}) {
    TestClient client(server_->port());
    client.send(std::string("POST / HTTP/1.1\r\nHost: h\r\n") + expect +
                "Content-Length: 10000000\r\n\r\nabc");
    const std::string answer = client.read_response();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 401")) << answer;
    EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
  }
  EXPECT_EQ(handled, 0);
  TestClient client(server_->port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nX-Key: k\r\nContent-Length: 2\r\n\r\nab");
  EXPECT_TRUE(client.read_response().starts_with("HTTP/1.1 200"));
  EXPECT_EQ(handled, 1);
}

TEST_F(HttpServerTest, SaysContinueBeforeTheBodyOnly) {
  serve_echo();
  TestClient client(server_->port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_TRUE(client.read_response().ends_with("POST /||ab"));
}

TEST_F(HttpServerTest, RefusesABodyOverTheLimitAndClosesTheConnection) {
  options_.max_body_bytes = 1000;
  serve_echo();
  TestClient client(server_->port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
  client.send(
      std::string(200'000, 'x'));  // a client that does not wait still gets the answer, not a reset
  const std::string answer = client.read_all();
  EXPECT_EQ(answer.rfind("HTTP/1.1 413 ", 0), 0u) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  EXPECT_NE(answer.find("error: the request body is too large"), std::string::npos);
  EXPECT_TRUE(client.saw_end());
  client.close();
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(HttpServerTest, AnswersGarbageInTheShapeOfTheSurface) {
  serve_echo();
  TestClient client(server_->port());
  client.send("\x16\x03\x01 hello\r\n\r\n");
  const std::string answer = client.read_all();
  EXPECT_EQ(answer.rfind("HTTP/1.1 400 ", 0), 0u) << answer;
  EXPECT_NE(answer.find("error: malformed"), std::string::npos);
}

TEST_F(HttpServerTest, SpeaksHttp10) {
  serve_echo();
  TestClient plain(server_->port());
  plain.send("GET /x HTTP/1.0\r\n\r\n");
  const std::string answer = plain.read_all();
  EXPECT_EQ(answer.rfind("HTTP/1.0 200 OK\r\n", 0), 0u);
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  TestClient kept(server_->port());
  kept.send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(kept.read_response().find("Connection: keep-alive"), std::string::npos);
  kept.send("GET /y HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(kept.read_response().ends_with("GET /y||"));
}

TEST_F(HttpServerTest, TimesOutASlowHeadASlowBodyAndAnIdleConnection) {
  options_.header_timeout = 100ms;
  options_.body_timeout = 120ms;
  options_.idle_timeout = 140ms;
  serve_echo();
  TestClient silent(server_->port()), head(server_->port()), body(server_->port()),
      idle(server_->port());
  head.send("GET / HTTP/1.1\r\nHo");
  body.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  idle.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  // One byte now and then does not prolong the head's time.
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(20ms);
    head.send("s");
  }
  EXPECT_EQ(head.read_all().rfind("HTTP/1.1 408 ", 0), 0u);
  EXPECT_EQ(body.read_all().rfind("HTTP/1.1 408 ", 0), 0u);
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_TRUE(silent.saw_end());
  EXPECT_FALSE(idle.read_response().empty());
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(idle.saw_end());
}

TEST_F(HttpServerTest, AHandlerThatForgetsToAnswerOrThrowsGivesA500) {
  serve([](std::shared_ptr<HttpExchange> exchange) {
    if (exchange->request().path == "/throw") throw std::runtime_error("boom");
  });
  TestClient client(server_->port());
  client.send("GET /forget HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.read_response().rfind("HTTP/1.1 500 ", 0), 0u);
  client.send("GET /throw HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.read_response().rfind("HTTP/1.1 500 ", 0), 0u);
}

TEST_F(HttpServerTest, ALineBreakInAHeaderValueCannotForgeAHeader) {
  serve([](std::shared_ptr<HttpExchange> exchange) {
    HttpResponse response;
    response.headers.add("X-Request-Id", "a\r\nSet-Cookie: b");
    exchange->send(std::move(response));
  });
  TestClient client(server_->port());
  client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.read_response().find("\r\nSet-Cookie"), std::string::npos);
}

TEST_F(HttpServerTest, NewcomersWaitWhileAllConnectionsAreTaken) {
  options_.max_connections = 2;
  serve_echo();
  auto first = std::make_unique<TestClient>(server_->port());
  TestClient second(server_->port());
  ASSERT_TRUE(eventually([&] { return server_->num_connections() == 2; }));
  TestClient third(server_->port());
  third.send("GET /third HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(third.read_until("||", 100ms), "");
  EXPECT_EQ(server_->num_connections(), 2u);
  first.reset();
  EXPECT_TRUE(third.read_response().ends_with("GET /third||"));
}

// A usual hard limit is 20,000 files: that is no reason to warn at every start.
TEST(ConnectionRoom, LeavesFilesForOthersAndIsTightOnlyWhereItMatters) {
  EXPECT_EQ(connection_room(1u << 20, 20'000).connections, 20'000u);
  EXPECT_EQ(connection_room(20'000, 20'000).connections, 19'872u);
  EXPECT_FALSE(connection_room(20'000, 20'000).is_tight);
  EXPECT_TRUE(connection_room(1'024, 20'000).is_tight);
  EXPECT_EQ(connection_room(200, 20'000).connections, 100u);
  EXPECT_FALSE(connection_room(1'024, 100).is_tight);
}

TEST_F(HttpServerTest, StopAcceptingLetsRunningRequestsEnd) {
  std::mutex mutex;
  std::shared_ptr<HttpExchange> held;
  serve([&](std::shared_ptr<HttpExchange> exchange) {
    std::lock_guard lock(mutex);
    held = std::move(exchange);
  });
  TestClient client(server_->port());
  client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] {
    std::lock_guard lock(mutex);
    return held != nullptr;
  }));
  server_->stop_accepting();
  ASSERT_TRUE(eventually([&] { return !TestClient(server_->port()).connected(); }));
  held->send({.status = 200, .headers = {}, .body = "late"});
  held.reset();
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.ends_with("late"));
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
}

TEST_F(HttpServerTest, DestructionClosesConnectionsAndTellsPendingExchanges) {
  std::atomic<bool> closed{false}, arrived{false};
  std::shared_ptr<HttpExchange> held;
  serve([&](std::shared_ptr<HttpExchange> exchange) {
    exchange->set_callbacks([&] { closed = true; }, nullptr);
    held = std::move(exchange);
    arrived = true;
  });
  TestClient client(server_->port());
  client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return arrived.load(); }));
  server_.reset();
  EXPECT_TRUE(closed);
  EXPECT_FALSE(held->alive());
  held->send({});  // does nothing
  client.read_all();
  EXPECT_TRUE(client.saw_end() || client.saw_reset());
}

TEST_F(HttpServerTest, AnErrorOnStartNamesAddressAndReason) {
  serve_echo();
  HttpServerOptions taken;
  taken.port = server_->port();
  HttpServer second(
      io_, taken, [](auto) {}, sentence);
  const Status status = second.start();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("127.0.0.1:" + std::to_string(taken.port)),
            std::string::npos);
  EXPECT_NE(status.error().message.find("in use"), std::string::npos);
  HttpServerOptions named;
  named.host = "example.org";
  EXPECT_EQ(HttpServer(
                io_, named, [](auto) {}, sentence)
                .start()
                .error()
                .code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace flotilla::net
