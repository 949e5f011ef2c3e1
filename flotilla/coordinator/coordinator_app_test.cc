// The whole coordinator over real sockets on loopback: HTTP clients on one side, nodes on the
// other.
#include "flotilla/coordinator/coordinator_app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "flotilla/coordinator/auth/key_table.h"
#include "flotilla/coordinator/link/link_acceptor.h"
#include "flotilla/coordinator/registry/node_table.h"
#include "flotilla/coordinator/schema.h"
#include "flotilla/net/test_certificate.h"
#include "flotilla/net/test_client.h"
#include "flotilla/net/ws_client.h"
#include "flotilla/protocol/handshake.h"
#include "flotilla/protocol/join_token.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/transcript.h"

namespace flotilla::coordinator {
namespace {

using namespace std::chrono_literals;
using net::eventually;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Mood { kAnswer, kStopAfterContent, kNoContent };

// A node that plays one part. Its work runs on the socket's strand.
class SocketNode {
 public:
  SocketNode(net::IoRuntime& io, const std::string& url, protocol::NodeCredentials credentials,
             Mood mood)
      : clock_(), mood_(mood), handshake_(std::move(credentials)) {
    net::WsClientOptions options;
    options.url = url;
    net::WsHandlers handlers;
    handlers.on_open = [this] {
      open_ = true;
      socket()->send(handshake_.hello(), false);
    };
    handlers.on_message = [this](std::string message, bool binary) { on_message(message, binary); };
    handlers.on_closed = [this](const std::string&) { closed = true; };
    auto made = net::connect_websocket(io, options, std::move(handlers));
    EXPECT_TRUE(made.ok());
    std::lock_guard lock(mutex_);
    socket_ = std::move(*made);
  }
  ~SocketNode() {
    kill();
    EXPECT_TRUE(eventually([&] { return closed.load(); }));
  }
  void kill() { socket()->abort(); }
  std::string fault() const {
    std::lock_guard lock(mutex_);
    return fault_;
  }

  std::atomic<bool> registered{false}, closed{false};
  std::atomic<int> num_started{0}, num_cancelled{0};
  std::atomic<std::uint32_t> first_token_within_ms{0};  // of the latest job

 private:
  std::shared_ptr<net::WsSession> socket() {
    while (true) {  // on_open may run before the constructor has stored it
      std::lock_guard lock(mutex_);
      if (socket_) return socket_;
    }
  }
  void send(protocol::ProviderMessage message, const JobId& job = {}, std::uint32_t attempt = 0) {
    socket()->send(*channel_->seal_message(message, job, attempt), true);
  }
  void on_message(const std::string& message, bool binary) {
    if (!channel_) {
      auto proof = handshake_.on_message(message, binary);
      if (!proof.ok()) {
        std::lock_guard lock(mutex_);
        fault_ = proof.error().param;
        return;
      }
      socket()->send(std::move(*proof), true);
      channel_.emplace(handshake_.keys(), clock_);
      protocol::Register hello;
      hello.models.emplace_back();
      hello.models.back().id = "m";
      hello.models.back().max_concurrent = 4;
      return send(hello);
    }
    if (auto refusal = protocol::open_plain_frame(message); refusal.ok()) {
      std::lock_guard lock(mutex_);
      fault_ = std::get<protocol::Reject>(*refusal).error.param;
      return;
    }
    auto frame = channel_->open(message);
    ASSERT_TRUE(frame.ok()) << to_string(frame.error());
    auto decoded = protocol::decode_coordinator(frame->header.kind, frame->body);
    ASSERT_TRUE(decoded.ok());
    const JobId job = frame->header.job;
    const std::uint32_t attempt = frame->header.attempt;
    if (std::holds_alternative<protocol::Registered>(*decoded)) registered = true;
    if (const auto* prepare = std::get_if<protocol::Prepare>(&*decoded)) {
      first_token_within_ms = prepare->first_token_within_ms;
      send(protocol::Lease{}, job, attempt);
    }
    if (std::holds_alternative<protocol::Cancel>(*decoded)) {
      ++num_cancelled;
      send(protocol::CancelAck{}, job, attempt);
    }
    if (std::holds_alternative<protocol::Start>(*decoded)) {
      ++num_started;
      play(job, attempt);
    }
  }
  void play(const JobId& job, std::uint32_t attempt) {
    if (mood_ == Mood::kNoContent) return;
    for (std::uint64_t i = 0; i < 2; ++i) {
      protocol::Tokens tokens;
      tokens.first_index = i;
      tokens.ids = {static_cast<TokenId>(i)};
      tokens.deltas = {{protocol::TextChannel::kContent, i == 0 ? "Hello" : " world"}};
      send(tokens, job, attempt);
      if (mood_ == Mood::kStopAfterContent) return;
    }
    protocol::Finish finish;
    finish.reason = protocol::WireFinishReason::kStop;
    finish.num_ids = 2;
    finish.usage = {3, 2, 0, 0};
    send(finish, job, attempt);
  }

  const SystemClock clock_;
  const Mood mood_;
  protocol::NodeHandshake handshake_;
  std::optional<protocol::SealedChannel> channel_;
  std::atomic<bool> open_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<net::WsSession> socket_;  // guarded by mutex_
  std::string fault_;                       // guarded by mutex_
};

class AppTest : public ::testing::Test {
 protected:
  AppTest() {
    static std::atomic<int> n{0};
    path_ = ::testing::TempDir() + "/flotilla-app-" + std::to_string(::getpid()) + "-" +
            std::to_string(n++);
    config_.listen = "127.0.0.1:0";
    config_.database = path_;
    config_.drain_timeout_s = 5;
  }
  ~AppTest() override {
    app_.reset();
    for (const char* suffix : {"", "-wal", "-shm", ".key", ".crt"})
      std::remove((path_ + suffix).c_str());
  }

  void start() {
    auto app = CoordinatorApp::start(config_, clock_);
    ASSERT_TRUE(app.ok()) << to_string(app.error());
    app_ = std::move(*app);
    database_.emplace(std::move(*open_database(path_)));
    key_ = create_key(*database_, "test", 1)->key;
    ASSERT_TRUE(eventually([&] { return get("/v1/models").find(" 200 ") != std::string::npos; }));
  }

  protocol::NodeCredentials credentials(const std::string& name) {
    const auto secret = *invite_node(*database_, name, 1);
    return {name, protocol::Identity::generate(),
            protocol::Identity::load_or_create(config_.identity_path())->public_key(), secret,
            "test"};
  }
  std::unique_ptr<SocketNode> node(const std::string& name, Mood mood) {
    auto made = std::make_unique<SocketNode>(node_io_, url(), credentials(name), mood);
    EXPECT_TRUE(eventually([&] { return made->registered.load(); }));
    return made;
  }
  std::string url() const {
    return "ws://127.0.0.1:" + std::to_string(app_->link_port()) + "/v1/link";
  }

  std::string get(const std::string& path) {
    net::TestClient client(app_->port());
    client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key_ +
                "\r\n\r\n");
    return client.read_response();
  }
  std::string as_admin(const std::string& method, const std::string& path, const std::string& key) {
    net::TestClient client(app_->port());
    client.send(method + " " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key +
                "\r\nContent-Length: 0\r\n\r\n");
    return client.read_response();
  }
  void post_chat(net::TestClient& client, bool stream) {
    const std::string body =
        std::string(R"({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":)") +
        (stream ? "true}" : "false}");
    client.send(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Authorization: Bearer " +
        key_ + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }

  const SystemClock clock_;
  std::string path_;
  CoordinatorConfig config_;
  std::unique_ptr<CoordinatorApp> app_;
  std::optional<store::Database> database_;
  std::string key_;
  net::IoRuntime node_io_{2};
};

TEST_F(AppTest, AnAnswerComesWholeAndStreamed) {
  start();
  EXPECT_THAT(get("/readyz"), HasSubstr(" 503 "));
  auto a = node("a", Mood::kAnswer);
  EXPECT_TRUE(eventually([&] { return get("/readyz").find(" 200 ") != std::string::npos; }));
  EXPECT_THAT(get("/v1/models"), HasSubstr("\"id\":\"m\""));
  net::TestClient whole(app_->port());
  post_chat(whole, false);
  const std::string answer = whole.read_response();
  EXPECT_THAT(answer, HasSubstr(" 200 "));
  EXPECT_THAT(answer, HasSubstr("Hello world"));
  EXPECT_THAT(answer, HasSubstr("\"finish_reason\":\"stop\""));
  net::TestClient stream(app_->port());
  post_chat(stream, true);
  const std::string text = stream.read_until("data: [DONE]");
  EXPECT_THAT(text, HasSubstr("text/event-stream"));
  EXPECT_THAT(text, HasSubstr("Hello"));
  EXPECT_THAT(text, HasSubstr(" world"));
  const std::string metrics = get("/metrics");
  EXPECT_THAT(metrics, HasSubstr("flotilla_jobs_total{outcome=\"ok\"} 2"));
  EXPECT_THAT(metrics, HasSubstr("flotilla_tokens_relayed_total 4"));
  EXPECT_THAT(metrics, HasSubstr("flotilla_nodes 1"));
}

TEST_F(AppTest, ANodeKilledBeforeContentIsReplaced) {
  start();
  auto a = node("a", Mood::kNoContent);
  net::TestClient client(app_->port());
  post_chat(client, true);
  ASSERT_TRUE(eventually([&] { return a->num_started == 1; }));
  EXPECT_EQ(a->first_token_within_ms, config_.first_token_timeout_s * 1000);
  auto b = node("b", Mood::kAnswer);
  a->kill();
  const std::string text = client.read_until("data: [DONE]");
  EXPECT_THAT(text, HasSubstr(" 200 "));
  EXPECT_THAT(text, HasSubstr(" world"));
  EXPECT_THAT(text, Not(HasSubstr("\"error\"")));
}

TEST_F(AppTest, ANodeKilledAfterContentEndsTheStreamWithOneErrorEvent) {
  start();
  auto a = node("a", Mood::kStopAfterContent);
  net::TestClient client(app_->port());
  post_chat(client, true);
  std::string text = client.read_until("Hello");
  auto b = node("b", Mood::kAnswer);
  a->kill();
  text += client.read_until("\r\n0\r\n\r\n");
  const std::size_t first = text.find("\"error\"");
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("\"error\"", first + 1), std::string::npos);
  EXPECT_THAT(text, Not(HasSubstr("\"finish_reason\":\"stop\"")));
  EXPECT_EQ(b->num_started, 0);
}

TEST_F(AppTest, AClientThatLeavesCancelsItsJobWithinASecond) {
  start();
  auto a = node("a", Mood::kStopAfterContent);
  auto client = std::make_unique<net::TestClient>(app_->port());
  post_chat(*client, true);
  client->read_until("Hello");
  const auto left = std::chrono::steady_clock::now();
  client.reset();
  EXPECT_TRUE(eventually([&] { return a->num_cancelled == 1; }, 1000ms));
  RecordProperty("cancel_ms", static_cast<int>((std::chrono::steady_clock::now() - left) / 1ms));
  EXPECT_TRUE(eventually(
      [&] { return get("/metrics").find("flotilla_jobs_in_flight 0") != std::string::npos; }));
}

TEST_F(AppTest, KeysMadeAndRevokedByACommandAreNoticedWithinTwoSeconds) {
  start();
  EXPECT_THAT(get("/v1/models"), HasSubstr(" 200 "));
  ASSERT_TRUE(revoke_key(*database_, "test", 2).ok());
  EXPECT_TRUE(
      eventually([&] { return get("/v1/models").find(" 401 ") != std::string::npos; }, 2000ms));
  EXPECT_THAT(get("/v1/models"), HasSubstr("revoked"));
}

TEST_F(AppTest, AnUninvitedNodeIsRefusedByNameAndARevokedOneIsCut) {
  start();
  protocol::NodeCredentials stranger = credentials("known");
  stranger.node = "stranger";
  SocketNode refused(node_io_, url(), stranger, Mood::kAnswer);
  EXPECT_TRUE(eventually([&] { return refused.fault() == "uninvited_node"; }));
  auto a = node("a", Mood::kAnswer);
  ASSERT_TRUE(revoke_node(*database_, "a", 2).ok());
  EXPECT_TRUE(eventually([&] { return a->closed.load(); }, 2000ms));
}

TEST_F(AppTest, AWrongCoordinatorKeyIsRefusedByTheNode) {
  start();
  protocol::NodeCredentials wrong = credentials("a");
  wrong.coordinator_key = protocol::Identity::generate().public_key();
  SocketNode refusing(node_io_, url(), wrong, Mood::kAnswer);
  EXPECT_TRUE(eventually([&] { return refusing.fault() == "wrong_coordinator_key"; }));
}

TEST_F(AppTest, OtherWebSocketPathsAreNotServed) {
  start();
  net::TestClient client(app_->port());
  client.send(
      "GET /other HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr(" 404 "));
}

TEST_F(AppTest, DrainingLetsRunningStreamsEndAndRefusesNewOnes) {
  start();
  auto a = node("a", Mood::kStopAfterContent);
  net::TestClient running(app_->port());
  post_chat(running, true);
  running.read_until("Hello");
  std::atomic<bool> hurry{false};
  std::thread drain([&] { app_->drain([&] { return hurry.load(); }); });
  EXPECT_TRUE(eventually([&] { return get("/readyz").find(" 503 ") != std::string::npos; }));
  net::TestClient late(app_->port());
  post_chat(late, true);
  EXPECT_THAT(late.read_response(), HasSubstr(" 503 "));
  hurry = true;  // a second signal
  drain.join();
  app_.reset();
}

TEST_F(AppTest, ALinkOfItsOwnServesNodesOnly) {
  config_.link_listen = "127.0.0.1:0";
  start();
  ASSERT_NE(app_->port(), app_->link_port());
  auto a = node("a", Mood::kAnswer);
  EXPECT_TRUE(eventually([&] { return get("/readyz").find(" 200 ") != std::string::npos; }));
  net::TestClient client(app_->link_port());
  client.send("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read_response(), HasSubstr(" 404 "));
}

TEST_F(AppTest, TheCertificateIsReadAgainOnRequest) {
  net::make_certificate(path_ + "-tls", "first");
  config_.tls_certificate_file = path_ + "-tls.crt";
  config_.tls_key_file = path_ + "-tls.key";
  auto app = CoordinatorApp::start(config_, clock_);
  ASSERT_TRUE(app.ok()) << to_string(app.error());
  const auto name = [&] {
    net::TestClient client((*app)->port());
    return client.start_tls() ? client.certificate_name() : "none";
  };
  EXPECT_EQ(name(), "first");
  net::make_certificate(path_ + "-tls", "second");
  EXPECT_EQ(name(), "first");
  ASSERT_TRUE((*app)->reload_certificate().ok());
  EXPECT_EQ(name(), "second");
  { std::fclose(std::fopen(config_.tls_certificate_file.c_str(), "wb")); }
  EXPECT_FALSE((*app)->reload_certificate().ok());
  EXPECT_EQ(name(), "second");
  std::remove(config_.tls_certificate_file.c_str());
  std::remove(config_.tls_key_file.c_str());
}

TEST_F(AppTest, TheAdminApiIsOffWithoutItsKey) {
  start();
  EXPECT_THAT(get("/v1/admin/nodes"), HasSubstr(" 403 "));
}

TEST_F(AppTest, TheAdminKeyOpensTheAdminApiAndNothingElse) {
  config_.admin_key = "an-admin-key-of-the-test";
  start();
  auto a = node("a", Mood::kAnswer);
  EXPECT_THAT(get("/v1/admin/nodes"), HasSubstr(" 401 "));  // a client's key
  const std::string nodes = as_admin("GET", "/v1/admin/nodes", config_.admin_key);
  EXPECT_THAT(nodes, HasSubstr(" 200 "));
  EXPECT_THAT(nodes, HasSubstr("\"node\":\"a\""));
  EXPECT_THAT(nodes, HasSubstr("\"slots\":4"));
  EXPECT_THAT(as_admin("GET", "/v1/models", config_.admin_key), HasSubstr(" 401 "));
  EXPECT_THAT(as_admin("POST", "/v1/admin/nodes", config_.admin_key), HasSubstr(" 405 "));
}

TEST_F(AppTest, StartingNamesWhatIsWrong) {
  config_.admin_key = "short";
  EXPECT_THAT(CoordinatorApp::start(config_, clock_).error().message, HasSubstr("admin_key"));
  config_.admin_key.clear();
  config_.listen = "127.0.0.1";
  EXPECT_FALSE(CoordinatorApp::start(config_, clock_).ok());
  config_.listen = "127.0.0.1:0";
  config_.database = "/nonexistent/x.db";
  EXPECT_THAT(CoordinatorApp::start(config_, clock_).error().message,
              HasSubstr("/nonexistent/x.db"));
}

}  // namespace
}  // namespace flotilla::coordinator
