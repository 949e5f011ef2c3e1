// The node's end of the link: dials, proves who it is, seals and opens frames, notices a dead
// coordinator, dials again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "flotilla/base/clock.h"
#include "flotilla/net/io_runtime.h"
#include "flotilla/net/ws_client.h"
#include "flotilla/protocol/handshake.h"
#include "flotilla/protocol/messages.h"
#include "flotilla/protocol/sealed_channel.h"
#include "flotilla/provider/backoff.h"

namespace flotilla::provider {

struct LinkOptions {
  net::WsClientOptions websocket;
  protocol::NodeCredentials credentials;
  BackoffOptions backoff = {};
  std::chrono::milliseconds handshake_timeout{10'000};  // from the open connection to Registered
};

// All run on the link's strand.
struct LinkEvents {
  std::function<protocol::Register()> make_register;
  std::function<protocol::Heartbeat()> make_heartbeat;  // the link fills in `sequence`
  std::function<void(const protocol::Registered&)> on_up;
  // Never Registered, HeartbeatAck or Reject: those are the link's own.
  std::function<void(const protocol::FrameHeader&, protocol::CoordinatorMessage)> on_message;
  std::function<void(const std::string& reason)> on_down;  // once after each on_up
  // An attempt failed: `error` is a named fault (protocol::link_fault) or kUnavailable.
  // `was_registered` says whether this process ever got through. The link goes on trying.
  std::function<void(const Error& error, bool was_registered)> on_failed;
};

// Every member on `strand`. Held by shared_ptr: pending work keeps it alive until stop().
class CoordinatorLink : public std::enable_shared_from_this<CoordinatorLink> {
 public:
  // `io` and `clock` must outlive it.
  CoordinatorLink(net::IoRuntime& io, const net::Strand& strand, const Clock& clock,
                  LinkOptions options, LinkEvents events);

  void start();
  void stop(std::string_view reason);  // for good: no event follows
  bool up() const { return state_ == State::kUp; }
  // False when the link is down; the message is then gone. A message over its limits is our bug and
  // ends the connection.
  bool send(const protocol::ProviderMessage& message, const JobId& job = {},
            std::uint32_t attempt = 0);
  void send_register();   // the list of models has changed
  void send_heartbeat();  // now, besides the regular ones
  std::size_t queued_bytes() const { return session_ ? session_->queued_bytes() : 0; }
  // Of this connection, incomplete messages too.
  std::uint64_t received_bytes() const { return session_ ? session_->received_bytes() : 0; }

 private:
  enum class State { kWaiting, kConnecting, kHandshake, kRegistering, kUp, kStopped };

  void dial();
  void on_open();
  void on_message(std::string message, bool binary);
  Status handle(std::string_view message, bool binary);
  Status handle_frame(std::string_view message);
  std::optional<Error> plain_reject(std::string_view message) const;
  void on_registered(const protocol::Registered& registered);
  void disconnect(const Error& error);
  void check_alive();
  void beat();

  net::IoRuntime& io_;
  const net::Strand strand_;
  const Clock& clock_;
  const LinkOptions options_;
  LinkEvents events_;
  Backoff backoff_;
  net::Timer retry_timer_;
  net::Timer alive_timer_;  // handshake, then silence
  net::Timer beat_timer_;

  State state_ = State::kWaiting;
  std::uint64_t connection_ = 0;  // counts attempts: events of earlier ones are dropped
  std::shared_ptr<net::WsSession> session_;
  std::optional<protocol::NodeHandshake> handshake_;
  std::optional<protocol::SealedChannel> channel_;
  bool was_registered_ = false;
  Clock::Instant up_since_;
  Clock::Instant last_heard_;
  Clock::Instant check_due_;
  std::uint64_t received_seen_ = 0;  // of this connection, at the last check
  std::chrono::milliseconds dead_after_{15'000};
  std::chrono::milliseconds heartbeat_interval_{5'000};
  std::uint64_t heartbeat_sequence_ = 0;
  std::uint64_t acked_sequence_ = 0;  // on this connection; 0: none
  Clock::Instant acked_at_{};
};

}  // namespace flotilla::provider
