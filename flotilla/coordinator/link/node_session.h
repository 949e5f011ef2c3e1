// One node's connection, from its Hello to its end: handshake, sealing, and the way between the
// WebSocket's strand and the core strand.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/coordinator/gateway/gateway.h"
#include "flotilla/coordinator/registry/node_directory.h"
#include "flotilla/net/ws_session.h"
#include "flotilla/protocol/handshake.h"
#include "flotilla/protocol/sealed_channel.h"

namespace flotilla::coordinator {

// Of a node that has proved who it is. Before that kMaxHandshakeBytes are taken, and no more kept.
inline constexpr std::size_t kMaxMessageBytes = protocol::Tokens::kMaxBytes + 4096;

class NodeSession final : public NodeLink, public std::enable_shared_from_this<NodeSession> {
 public:
  // What all sessions share. Outlives them.
  struct Context {
    const protocol::Identity& identity;
    NodeDirectory& directory;
    const Clock& clock;
    Metrics& metrics;
    Dispatcher& dispatcher;  // core strand only
    CorePost core;
  };

  NodeSession(const Context& context, std::shared_ptr<net::WsSession> socket);
  ~NodeSession() override;

  // On the socket's strand.
  void on_message(std::string message, bool binary);
  void on_closed(const std::string& reason);
  // From any thread: a peer that did not get through the handshake in time is cut.
  void abort_if_unregistered();
  Clock::Instant opened() const { return opened_; }
  bool registered() const { return registered_; }

  // NodeLink, on the core strand.
  void send(protocol::CoordinatorMessage message, const JobId& job, std::uint32_t attempt) override;
  void send_prepare(std::shared_ptr<const protocol::Prepare> prepare, std::uint32_t choice,
                    const JobId& job, std::uint32_t attempt) override;
  std::size_t queued_bytes() const override { return socket_->queued_bytes(); }
  void close(Error why) override;

 private:
  enum class Step { kHello, kFinding, kProof, kBinding, kSealed, kClosed };

  void on_hello(const std::string& message, bool binary);
  void on_found(Result<std::optional<protocol::KnownNode>> known);
  void on_proof(const std::string& message, bool binary);
  void seal();
  void on_frame(const std::string& message, bool binary);
  // `bytes`: of the body it came in.
  void hand_over(const protocol::FrameHeader& header, protocol::ProviderMessage message,
                 std::size_t bytes);
  void gather(std::size_t seen, int idle);
  void pass_burst();
  void transmit(const protocol::CoordinatorMessage& message, const JobId& job,
                std::uint32_t attempt);
  // Tells the node why, as its step allows, and closes.
  void refuse(const Error& error);

  const Context context_;
  const std::shared_ptr<net::WsSession> socket_;
  const Clock::Instant opened_;

  // On the socket's strand.
  Step step_ = Step::kHello;
  protocol::CoordinatorHandshake handshake_;
  std::optional<protocol::KnownNode> known_;
  std::optional<protocol::SealedChannel> channel_;
  ProviderId provider_;
  std::vector<std::string> early_;  // frames that came while the binding was written
  bool joined_ = false;             // Register was handed over

  struct Handed {
    JobId job;
    std::uint32_t attempt = 0;
    bool joins = false;
    std::size_t cost = 0;
    protocol::ProviderMessage message;
  };
  std::vector<Handed> burst_;  // for the core strand
  bool gathering_ = false;

  std::atomic<bool> registered_{false};
  std::atomic<std::size_t> handed_over_bytes_{0};  // of messages that wait for the core strand
};

}  // namespace flotilla::coordinator
