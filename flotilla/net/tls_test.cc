#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <future>

#include "flotilla/net/http.h"
#include "flotilla/net/test_certificate.h"
#include "flotilla/net/test_client.h"
#include "flotilla/net/ws_client.h"

namespace flotilla::net {
namespace {

using namespace std::chrono_literals;

class TlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/flotilla-tls-XXXXXX";
    folder_ = mkdtemp(folder);
    make_certificate(folder_ + "/one", "one");
    make_certificate(folder_ + "/two", "two");
    use("one");
    options_.tls = TlsFiles{folder_ + "/live.crt", folder_ + "/live.key"};
    options_.header_timeout = 300ms;
  }
  void TearDown() override { (void)std::system(("rm -r " + folder_).c_str()); }
  void use(const std::string& name) {
    for (const char* end : {".crt", ".key"}) {
      std::ofstream(folder_ + "/live" + end) << std::ifstream(folder_ + "/" + name + end).rdbuf();
    }
  }
  void serve() {
    server_ = std::make_unique<HttpServer>(
        io_, options_,
        [](std::shared_ptr<HttpExchange> exchange) {
          HttpResponse response;
          response.body = exchange->request().secure ? "secure" : "plain";
          if (exchange->request().path == "/large") response.body = std::string(3 << 20, 'L');
          exchange->send(std::move(response));
        },
        [](unsigned status, std::string_view) {
          return HttpResponse{.status = status, .headers = {}, .body = {}};
        });
    server_->set_ws_acceptor(
        [](const HttpRequest&, std::shared_ptr<WsSession> session) -> Result<WsHandlers> {
          WsHandlers handlers;
          handlers.on_message = [weak = std::weak_ptr(session)](std::string message, bool binary) {
            if (auto s = weak.lock()) s->send(std::move(message), binary);
          };
          handlers.on_closed = [](std::string) {};
          return handlers;
        });
    const Status started = server_->start();
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  // What a WebSocket client saw: "open" or the reason why not.
  std::string connect(WsClientOptions options, const std::string& host = "127.0.0.1") {
    options.url = "wss://" + host + ":" + std::to_string(server_->port()) + "/link";
    std::promise<std::string> outcome;
    std::atomic<bool> told{false};
    const auto tell = [&](std::string text) {
      if (!told.exchange(true)) outcome.set_value(std::move(text));
    };
    std::promise<void> gone;
    auto session = connect_websocket(io_, options,
                                     {.on_message = [](std::string, bool) {},
                                      .on_closed =
                                          [&](std::string reason) {
                                            tell(reason);
                                            gone.set_value();
                                          },
                                      .on_open = [&] { tell("open"); }});
    if (!session.ok()) return session.error().message;
    auto future = outcome.get_future();
    std::string text =
        future.wait_for(3s) == std::future_status::ready ? future.get() : "nothing happened";
    (*session)->abort();
    gone.get_future().wait_for(3s);
    return text;
  }

  std::string folder_;
  IoRuntime io_{2};
  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(TlsTest, ServesHttpWithAlpn) {
  serve();
  TestClient client(server_->port());
  ASSERT_TRUE(client.start_tls("http/1.1"));
  EXPECT_EQ(client.alpn(), "http/1.1");
  client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(client.read_response().ends_with("secure"));
  client.send("GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.ends_with(std::string(3 << 20, 'L')));
  EXPECT_TRUE(client.saw_end()) << "close_notify is missing";
}

TEST_F(TlsTest, ReloadServesTheNewCertificateToNewConnections) {
  serve();
  TestClient before(server_->port());
  ASSERT_TRUE(before.start_tls());
  EXPECT_EQ(before.certificate_name(), "one");
  use("two");
  ASSERT_TRUE(server_->reload_certificate().ok());
  TestClient after(server_->port());
  ASSERT_TRUE(after.start_tls());
  EXPECT_EQ(after.certificate_name(), "two");
  before.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(before.read_response().ends_with("secure"));

  std::ofstream(folder_ + "/live.crt") << "not a certificate";
  const Status broken = server_->reload_certificate();
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.error().message.find("live.crt"), std::string::npos);
  TestClient still(server_->port());
  ASSERT_TRUE(still.start_tls());
  EXPECT_EQ(still.certificate_name(), "two");
}

TEST_F(TlsTest, AKeyOfAnotherCertificateIsRefusedAtStart) {
  options_.tls->key_file = folder_ + "/two.key";
  HttpServer server(io_, options_, [](auto) {}, {});
  const Status status = server.start();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("two.key"), std::string::npos) << status.error().message;
}

TEST_F(TlsTest, APlainClientOnATlsPortAndASilentOneAreDropped) {
  serve();
  TestClient plain(server_->port()), silent(server_->port());
  plain.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  plain.read_all();
  silent.read_all();
  EXPECT_TRUE(silent.saw_end() || silent.saw_reset());
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(TlsTest, WebSocketClientAcceptsTheRightAuthorityOrPinOnly) {
  serve();
  EXPECT_EQ(connect({.url = {}, .ca_file = folder_ + "/one.crt", .pinned_public_key = {}}), "open");
  EXPECT_EQ(
      connect({.url = {}, .ca_file = folder_ + "/one.crt", .pinned_public_key = {}}, "localhost"),
      "open");
  EXPECT_NE(
      connect({.url = {}, .ca_file = folder_ + "/two.crt", .pinned_public_key = {}}).find("TLS"),
      std::string::npos);
  EXPECT_NE(connect({.url = {}, .ca_file = {}, .pinned_public_key = {}}).find("TLS"),
            std::string::npos);
  const auto pin = [&](const std::string& name) {
    return *public_key_pin(folder_ + "/" + name + ".crt");
  };
  EXPECT_EQ(connect({.url = {}, .ca_file = {}, .pinned_public_key = pin("one")}), "open");
  EXPECT_NE(
      connect({.url = {}, .ca_file = {}, .pinned_public_key = pin("two")}).find("not the pinned"),
      std::string::npos);
  EXPECT_NE(connect({.url = {}, .ca_file = {}, .pinned_public_key = "abc"}).find("64 hexadecimal"),
            std::string::npos);
  EXPECT_NE(
      connect({.url = {}, .ca_file = "/nowhere.pem", .pinned_public_key = {}}).find("/nowhere.pem"),
      std::string::npos);
}

TEST_F(TlsTest, WebSocketClientRefusesACertificateForAnotherHost) {
  make_certificate(folder_ + "/other", "other", "DNS:example.org");
  use("other");
  serve();
  EXPECT_NE(
      connect({.url = {}, .ca_file = folder_ + "/other.crt", .pinned_public_key = {}}).find("TLS"),
      std::string::npos);
}

}  // namespace
}  // namespace flotilla::net
