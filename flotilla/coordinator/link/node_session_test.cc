// A node that speaks the real protocol over a socket in memory.
#include "flotilla/coordinator/link/node_session.h"

#include <deque>
#include <map>

#include "flotilla/coordinator/fleet_fixture.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/protocol/transcript.h"

namespace flotilla::coordinator {
namespace {

using protocol::LinkFault;

// Everything is one queue of tasks: the socket's strand, the core strand, the directory's thread.
using Tasks = std::deque<std::function<void()>>;

struct MemorySocket final : net::WsSession {
  explicit MemorySocket(Tasks& t) : tasks(t) {}
  bool send(std::string message, bool binary) override {
    if (closed) return false;
    EXPECT_TRUE(binary);
    received.push_back(std::move(message));
    return true;
  }
  void close(std::uint16_t, std::string_view) override { closed = true; }
  void abort() override { closed = true; }
  std::size_t queued_bytes() const override { return queued; }
  std::uint64_t received_bytes() const override { return 0; }
  void set_max_message_bytes(std::size_t bytes) override { max_message_bytes = bytes; }
  std::string peer() const override { return "memory"; }
  void post(std::function<void()> task) override { tasks.push_back(std::move(task)); }
  Tasks& tasks;
  std::deque<std::string> received;  // by the node
  std::size_t queued = 0;
  std::size_t max_message_bytes = 0;
  bool closed = false;
};

struct MemoryDirectory final : NodeDirectory {
  explicit MemoryDirectory(Tasks& t) : tasks(t) {}
  void find(const std::string& name,
            std::function<void(Result<std::optional<protocol::KnownNode>>)> done) override {
    tasks.push_back([this, name, done] {
      const auto at = nodes.find(name);
      done(at == nodes.end() ? std::optional<protocol::KnownNode>() : at->second);
    });
  }
  void bind(const protocol::KnownNode& known, const protocol::PublicKey& key,
            std::function<void(Status)> done) override {
    tasks.push_back([this, known, key, done] {
      if (!bind_works) return done(Error{ErrorCode::kUnavailable, "disk full"});
      nodes.at(known.node).bound_key = key;
      done(ok_status());
    });
  }
  Tasks& tasks;
  std::map<std::string, protocol::KnownNode> nodes;
  bool bind_works = true;
};

class LinkTest : public Fleet {
 protected:
  LinkTest() {
    directory.nodes["alpha"] = {
        "alpha", protocol::Identity::from_seed(secret).public_key(), {}, false};
  }

  struct Node {
    std::shared_ptr<MemorySocket> socket;
    std::shared_ptr<NodeSession> session;
    std::unique_ptr<protocol::NodeHandshake> handshake;
    std::unique_ptr<protocol::SealedChannel> channel;
  };

  void run() {
    while (!tasks.empty()) {
      auto task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }

  Node dial(const std::string& name = "alpha") {
    Node node;
    node.socket = std::make_shared<MemorySocket>(tasks);
    node.session = std::make_shared<NodeSession>(
        NodeSession::Context{
            coordinator, directory, clock, metrics, dispatcher,
            [this](std::function<void()> task) { tasks.push_back(std::move(task)); }},
        node.socket);
    node.handshake = std::make_unique<protocol::NodeHandshake>(
        protocol::NodeCredentials{name, identity, coordinator.public_key(), secret, "test"});
    return node;
  }
  // The whole handshake; returns what the coordinator's refusal says.
  Status shake(Node& node) {
    node.session->on_message(node.handshake->hello(), false);
    run();
    FLOTILLA_TRY(const std::string proof, node.handshake->on_message(next(node), true));
    node.session->on_message(proof, true);
    if (node.socket->closed) {
      FLOTILLA_TRY(const auto answer, protocol::open_plain_frame(next(node)));
      return protocol::from_wire(std::get<protocol::Reject>(answer).error);
    }
    node.channel = std::make_unique<protocol::SealedChannel>(node.handshake->keys(), clock);
    return ok_status();
  }
  std::string next(Node& node) {
    EXPECT_FALSE(node.socket->received.empty());
    if (node.socket->received.empty()) return {};
    std::string out = std::move(node.socket->received.front());
    node.socket->received.pop_front();
    return out;
  }
  std::string sealed(Node& node, protocol::ProviderMessage message, const JobId& job = {},
                     std::uint32_t attempt = 0) {
    return *node.channel->seal_message(message, job, attempt);
  }
  void tell(Node& node, protocol::ProviderMessage message, const JobId& job = {},
            std::uint32_t attempt = 0) {
    node.session->on_message(sealed(node, std::move(message), job, attempt), true);
    run();
  }
  template <class M>
  M hear(Node& node, protocol::FrameHeader* header = nullptr) {
    auto frame = node.channel->open(next(node));
    if (!frame.ok()) {
      ADD_FAILURE() << to_string(frame.error());
      return {};
    }
    auto message = protocol::decode_coordinator(frame->header.kind, frame->body);
    if (header != nullptr) *header = frame->header;
    if (!message.ok() || !std::holds_alternative<M>(*message)) {
      ADD_FAILURE() << "got " << protocol::kind_name(frame->header.kind) << " for " << M::kType;
      return {};
    }
    return std::get<M>(*message);
  }
  static protocol::Register models(const std::string& model = "m") {
    protocol::Register message;
    message.models = {offer(model, 2)};
    return message;
  }
  Node joined() {
    Node node = dial();
    EXPECT_TRUE(shake(node).ok());
    run();
    tell(node, models());
    hear<protocol::Registered>(node);
    return node;
  }
  std::optional<LinkFault> reject_of(Node& node) {
    return protocol::link_fault(protocol::from_wire(hear<protocol::Reject>(node).error));
  }

  Tasks tasks;
  protocol::Identity coordinator = protocol::Identity::generate();
  protocol::Identity identity = protocol::Identity::generate();
  protocol::Seed secret = protocol::random_seed();
  MemoryDirectory directory{tasks};
};

TEST_F(LinkTest, ANodeJoinsIsBoundAndServesAJob) {
  Node node = dial();
  EXPECT_EQ(node.socket->max_message_bytes, 0u);  // what it began with, until the proof
  ASSERT_TRUE(shake(node).ok());
  EXPECT_EQ(node.socket->max_message_bytes, kMaxMessageBytes);
  // Sent at once, before the binding is written.
  node.session->on_message(sealed(node, models()), true);
  EXPECT_EQ(dispatcher.registry().num_providers(), 0u);
  run();
  EXPECT_EQ(directory.nodes["alpha"].bound_key, identity.public_key());
  EXPECT_EQ(hear<protocol::Registered>(node).provider, provider_id(identity.public_key()).value);
  auto client = ask();
  run();
  protocol::FrameHeader header;
  EXPECT_EQ(hear<protocol::Prepare>(node, &header).model, "m");
  tell(node, protocol::Lease{}, header.job, header.attempt);
  hear<protocol::Start>(node);
  protocol::Tokens message;
  message.ids = {7};
  message.deltas = {{protocol::TextChannel::kContent, "hi"}};
  tell(node, message, header.job, header.attempt);
  protocol::Finish end;
  end.reason = protocol::WireFinishReason::kStop;
  end.num_ids = 1;
  tell(node, end, header.job, header.attempt);
  EXPECT_EQ(client->text(), "hi");
  node.session->on_closed("bye");
  run();
  expect_idle();
  EXPECT_EQ(dispatcher.registry().num_providers(), 0u);
}

TEST_F(LinkTest, AnUninvitedNodeIsRefusedByName) {
  Node node = dial("stranger");
  const Status status = shake(node);
  EXPECT_EQ(protocol::link_fault(status.error()), LinkFault::kUninvitedNode);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("no node named 'stranger' was invited"));
  EXPECT_TRUE(node.socket->closed);
  EXPECT_THAT(metrics.render(), ::testing::HasSubstr("fault=\"uninvited_node\"} 1"));
}

TEST_F(LinkTest, ARevokedNodeIsRefusedByName) {
  directory.nodes["alpha"].revoked = true;
  Node node = dial();
  EXPECT_EQ(protocol::link_fault(shake(node).error()), LinkFault::kRevokedNode);
}

TEST_F(LinkTest, ANodeWhoseBindingCannotBeStoredIsNotLetIn) {
  directory.bind_works = false;
  Node node = dial();
  ASSERT_TRUE(shake(node).ok());
  node.session->on_message(sealed(node, models()), true);
  run();
  EXPECT_TRUE(node.socket->closed);
  EXPECT_EQ(dispatcher.registry().num_providers(), 0u);
}

TEST_F(LinkTest, ATamperedFrameEndsTheLinkByNameAndTheJobGoesElsewhere) {
  Node node = joined();
  auto client = ask();
  run();
  hear<protocol::Prepare>(node);
  auto other = join("b");
  std::string frame = sealed(node, protocol::Heartbeat{});
  frame.back() = static_cast<char>(frame.back() ^ 1);
  node.session->on_message(frame, true);
  run();
  EXPECT_EQ(reject_of(node), LinkFault::kFrameTampered);
  EXPECT_TRUE(node.socket->closed);
  node.session->on_closed("closed");
  run();
  EXPECT_EQ(other->asked.size(), 1u);
}

TEST_F(LinkTest, AReplayedFrameEndsTheLinkByName) {
  Node node = joined();
  const std::string frame = sealed(node, protocol::Heartbeat{});
  node.session->on_message(frame, true);
  run();
  hear<protocol::HeartbeatAck>(node);
  node.session->on_message(frame, true);
  run();
  EXPECT_EQ(reject_of(node), LinkFault::kFrameReplayed);
  EXPECT_TRUE(node.socket->closed);
}

TEST_F(LinkTest, TheFirstSealedMessageMustBeRegister) {
  Node node = dial();
  ASSERT_TRUE(shake(node).ok());
  run();
  tell(node, protocol::Heartbeat{});
  EXPECT_EQ(reject_of(node), LinkFault::kUnexpectedMessage);
}

TEST_F(LinkTest, TextOnASealedLinkAndMessagesOutOfTurnAreRefused) {
  Node node = joined();
  node.session->on_message("{}", false);
  EXPECT_EQ(reject_of(node), LinkFault::kUnexpectedMessage);

  Node eager = dial();
  eager.session->on_message(eager.handshake->hello(), false);
  eager.session->on_message(eager.handshake->hello(), false);
  EXPECT_TRUE(eager.socket->closed);
}

TEST_F(LinkTest, ARequestTooLargeForTheLinkGoesBackToTheClient) {
  Node node = joined();
  auto client = std::make_shared<FakeClient>();
  auto prepare = std::make_shared<protocol::Prepare>();
  prepare->model = "m";
  prepare->job = boost::json::string(17u << 20, 'x');
  dispatcher.submit({RequestId{99}, "big", true, 1, prepare, [client](serving::ChatEvent event) {
                       client->events.push_back(std::move(event));
                       return true;
                     }});
  run();
  EXPECT_EQ(client->error().code, ErrorCode::kTooLarge);
  EXPECT_FALSE(node.socket->closed);
  expect_idle();
}

TEST_F(LinkTest, AFullLinkSendsTheJobElsewhere) {
  Node node = joined();
  node.socket->queued = 16u << 20;
  auto client = ask();
  run();
  EXPECT_EQ(dispatcher.num_queued(), 1u);
  auto other = join("b");
  EXPECT_EQ(other->asked.size(), 1u);
}

TEST_F(LinkTest, ClosingTellsTheNodeWhy) {
  Node node = joined();
  dispatcher.set_access({}, {});
  run();
  EXPECT_EQ(reject_of(node), LinkFault::kRevokedNode);
  EXPECT_TRUE(node.socket->closed);
}

}  // namespace
}  // namespace flotilla::coordinator
