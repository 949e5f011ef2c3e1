#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <vector>

#include "flotilla/net/http.h"
#include "flotilla/net/test_client.h"
#include "flotilla/net/ws_client.h"

namespace flotilla::net {
namespace {

using namespace std::chrono_literals;

// What one side of a session saw. Shared with the handlers, which may outlive a failed test.
struct Side {
  std::mutex mutex;
  std::shared_ptr<WsSession> session;                  // guarded by mutex
  std::vector<std::pair<std::string, bool>> messages;  // guarded by mutex
  std::string closed;                                  // guarded by mutex
  std::atomic<int> num_opened{0}, num_closed{0};

  static WsHandlers handlers(const std::shared_ptr<Side>& side, bool echo = false) {
    WsHandlers out;
    out.on_message = [side, echo](std::string message, bool binary) {
      std::lock_guard lock(side->mutex);
      if (echo && side->session) side->session->send(message, binary);
      side->messages.emplace_back(std::move(message), binary);
    };
    out.on_closed = [side](std::string reason) {
      std::lock_guard lock(side->mutex);
      side->closed = std::move(reason);
      side->session.reset();
      ++side->num_closed;
    };
    out.on_open = [side] { ++side->num_opened; };
    return out;
  }
  std::size_t count() {
    std::lock_guard lock(mutex);
    return messages.size();
  }
};

class WsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = std::make_unique<HttpServer>(
        io_, options_, [](std::shared_ptr<HttpExchange> exchange) { exchange->send({}); },
        [](unsigned status, std::string_view message) {
          return HttpResponse{.status = status, .headers = {}, .body = std::string(message)};
        });
    server_->set_ws_acceptor([this](const HttpRequest& request,
                                    std::shared_ptr<WsSession> session) -> Result<WsHandlers> {
      if (request.path != "/link") return Error{ErrorCode::kNotFound, "no such path"};
      std::lock_guard lock(far_->mutex);
      far_->session = std::move(session);
      return Side::handlers(far_, /*echo=*/request.query == "echo");
    });
    ASSERT_TRUE(server_->start().ok());
  }
  std::string url(const std::string& target) const {
    return "ws://127.0.0.1:" + std::to_string(server_->port()) + target;
  }
  std::shared_ptr<WsSession> connect(const std::string& target) {
    auto session = connect_websocket(
        io_, {.url = url(target), .ca_file = {}, .pinned_public_key = {}}, Side::handlers(near_));
    return session.ok() ? *session : nullptr;
  }

  std::shared_ptr<Side> near_ = std::make_shared<Side>(), far_ = std::make_shared<Side>();
  IoRuntime io_{2};
  HttpServerOptions options_{.max_ws_message_bytes = 1 << 20};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(WsTest, MessagesOfEverySizeAndKindComeBackInOrder) {
  auto session = connect("/link?echo");
  ASSERT_TRUE(session);
  std::vector<std::pair<std::string, bool>> sent;
  for (std::size_t size : {0u, 1u, 125u, 126u, 4096u, 65535u, 65536u, 1u << 20}) {
    sent.emplace_back(std::string(size, static_cast<char>('a' + size % 26)), size % 2 == 0);
    EXPECT_TRUE(session->send(sent.back().first,
                              sent.back().second));  // the first ones before the handshake is done
  }
  ASSERT_TRUE(eventually([&] { return near_->count() == sent.size(); }, 5000ms));
  EXPECT_EQ(near_->messages, sent);
  EXPECT_EQ(near_->num_opened, 1);
  EXPECT_TRUE(eventually([&] { return session->queued_bytes() == 0; }));
  EXPECT_EQ(session->peer(), "127.0.0.1:" + std::to_string(server_->port()));
  EXPECT_EQ(server_->num_connections(), 1u);
  session->abort();
}

TEST_F(WsTest, CloseDeliversWhatIsQueuedAndTheReason) {
  auto session = connect("/link");
  ASSERT_TRUE(eventually([&] { return near_->num_opened == 1; }));
  for (int i = 0; i < 100; ++i) session->send("m" + std::to_string(i), false);
  session->close(1001, "going away");
  EXPECT_FALSE(session->send("too late", false));
  ASSERT_TRUE(eventually([&] { return far_->num_closed == 1 && near_->num_closed == 1; }));
  EXPECT_EQ(far_->count(), 100u);
  EXPECT_NE(far_->closed.find("1001"), std::string::npos) << far_->closed;
  EXPECT_NE(far_->closed.find("going away"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(WsTest, AbortIsSeenByBothSidesOnce) {
  auto session = connect("/link");
  ASSERT_TRUE(eventually([&] { return near_->num_opened == 1; }));
  session->abort();
  session->abort();
  session->close(1000, "");
  ASSERT_TRUE(eventually([&] { return far_->num_closed == 1 && near_->num_closed == 1; }));
  EXPECT_EQ(near_->closed, "aborted");
}

TEST_F(WsTest, ARefusedUpgradeIsAnHttpAnswer) {
  auto session = connect("/other");
  ASSERT_TRUE(eventually([&] { return near_->num_closed == 1; }));
  EXPECT_EQ(near_->num_opened, 0);
  EXPECT_FALSE(near_->closed.empty());
  TestClient client(server_->port());
  client.send(
      "GET /other HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  const std::string answer = client.read_response();
  EXPECT_EQ(answer.rfind("HTTP/1.1 404 ", 0), 0u) << answer;
  EXPECT_TRUE(answer.ends_with("no such path"));
}

TEST_F(WsTest, FramesSentWithTheUpgradeAreNotLostAndPingsAreAnswered) {
  TestClient client(server_->port());
  client.send(
      "GET /link HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" +
      std::string("\x81\x82\x00\x00\x00\x00hi\x89\x81\x00\x00\x00\x00p", 15));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_EQ(head.rfind("HTTP/1.1 101 ", 0), 0u) << head;
  EXPECT_NE(head.find("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), std::string::npos);
  EXPECT_EQ(client.read_bytes(3), std::string("\x8a\x01p", 3));
  EXPECT_TRUE(eventually([&] { return far_->count() == 1; }));
}

TEST_F(WsTest, AMessageOverTheLimitClosesTheSession) {
  auto session = connect("/link");
  session->send(std::string((1 << 20) + 1, 'x'), true);
  ASSERT_TRUE(eventually([&] { return far_->num_closed == 1; }));
  EXPECT_EQ(far_->count(), 0u);
  session->abort();
}

TEST_F(WsTest, TheLimitCanGrowWhenThePeerIsKnown) {
  server_->set_ws_acceptor(
      [this](const HttpRequest&, std::shared_ptr<WsSession> session) -> Result<WsHandlers> {
        session->set_max_message_bytes(100);
        WsHandlers handlers = Side::handlers(far_);
        handlers.on_message = [session, inner = std::move(handlers.on_message)](std::string message,
                                                                                bool binary) {
          session->set_max_message_bytes(1 << 20);
          inner(std::move(message), binary);
        };
        return handlers;
      });
  auto early = connect("/link");
  early->send(std::string(101, 'x'), true);
  ASSERT_TRUE(eventually([&] { return far_->num_closed == 1; }));
  EXPECT_EQ(far_->count(), 0u);
  auto known = connect("/link");
  known->send(std::string(100, 'x'), true);
  known->send(std::string(1 << 20, 'y'), true);
  ASSERT_TRUE(eventually([&] { return far_->count() == 2; }, 5000ms));
  known->abort();
}

TEST_F(WsTest, ReceivedBytesGrowBeforeAMessageIsComplete) {
  far_->session.reset();
  TestClient client(server_->port());
  client.send(
      "GET /link HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  client.read_until("\r\n\r\n");
  ASSERT_TRUE(eventually([&] {
    std::lock_guard lock(far_->mutex);
    return far_->session != nullptr;
  }));
  // The head of a masked frame of 200 bytes, and the first of them.
  client.send(std::string("\x82\xfe\x00\xc8\x01\x02\x03\x04", 8) + std::string(50, 'z'));
  EXPECT_TRUE(eventually([&] {
    std::lock_guard lock(far_->mutex);
    return far_->session->received_bytes() >= 50;
  }));
  EXPECT_EQ(far_->count(), 0u);
}

TEST_F(WsTest, AnUnmaskedOrMalformedFrameClosesTheSession) {
  for (const std::string& frame :
       {std::string("\x81\x02hi"), std::string(16, static_cast<char>(0xff))}) {
    const int before = far_->num_closed;
    TestClient client(server_->port());
    client.send(
        "GET /link HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    client.read_until("\r\n\r\n");
    client.send(frame);
    EXPECT_TRUE(eventually([&] { return far_->num_closed == before + 1; }));
  }
}

TEST_F(WsTest, APeerThatTakesNothingIsCutOffAtTheQueueLimit) {
  TestClient client(server_->port(), 16 << 10);
  client.send(
      "GET /link HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  client.read_until("\r\n\r\n");
  std::shared_ptr<WsSession> session;
  {
    std::lock_guard lock(far_->mutex);
    session = far_->session;
  }
  ASSERT_TRUE(session);
  int accepted = 0;
  while (session->send(std::string(1 << 20, 'x'), true) && accepted < 100) ++accepted;
  EXPECT_GE(accepted, 16);
  EXPECT_LT(accepted, 100);
  ASSERT_TRUE(eventually([&] { return far_->num_closed == 1; }));
  EXPECT_NE(far_->closed.find("16 MiB"), std::string::npos) << far_->closed;
}

TEST_F(WsTest, FailuresToConnectArriveAsClosed) {
  std::uint16_t free_port = 0;
  {
    HttpServer gone(io_, {}, [](auto) {}, {});
    ASSERT_TRUE(gone.start().ok());
    free_port = gone.port();
  }
  auto refused = connect_websocket(io_,
                                   {.url = "ws://127.0.0.1:" + std::to_string(free_port),
                                    .ca_file = {},
                                    .pinned_public_key = {}},
                                   Side::handlers(near_));
  ASSERT_TRUE(refused.ok());
  ASSERT_TRUE(eventually([&] { return near_->num_closed == 1; }));
  EXPECT_NE(near_->closed.find("refused"), std::string::npos) << near_->closed;
  EXPECT_FALSE((*refused)->send("x", false));
  EXPECT_FALSE(
      connect_websocket(io_, {.url = "http://x", .ca_file = {}, .pinned_public_key = {}}, {}).ok());
}

TEST_F(WsTest, AServerThatNeverAnswersRunsIntoTheConnectTimeout) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  socklen_t length = sizeof address;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  auto session =
      connect_websocket(io_,
                        {.url = "ws://127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
                         .ca_file = {},
                         .pinned_public_key = {},
                         .connect_timeout = 100ms},
                        Side::handlers(near_));
  ASSERT_TRUE(eventually([&] { return near_->num_closed == 1; }));
  EXPECT_NE(near_->closed.find("100 ms"), std::string::npos) << near_->closed;
  ::close(listener);
}

TEST_F(WsTest, DestroyingTheServerClosesItsSessions) {
  auto session = connect("/link");
  ASSERT_TRUE(eventually([&] { return near_->num_opened == 1; }));
  server_.reset();
  EXPECT_EQ(far_->num_closed, 1);
  EXPECT_TRUE(eventually([&] { return near_->num_closed == 1; }));
}

}  // namespace
}  // namespace flotilla::net
