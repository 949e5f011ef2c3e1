#include "flotilla/provider/coordinator_link.h"

#include <algorithm>
#include <random>
#include <utility>

#include "flotilla/base/overloaded.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/codec.h"
#include "flotilla/protocol/link_error.h"

namespace flotilla::provider {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

namespace {
// A timer that fires so late means that the whole process slept: what the coordinator sent
// meanwhile is still unread.
constexpr auto kSleptThrough = 2s;

std::uint64_t random_seed() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}
}  // namespace

CoordinatorLink::CoordinatorLink(net::IoRuntime& io, const net::Strand& strand, const Clock& clock,
                                 LinkOptions options, LinkEvents events)
    : io_(io),
      strand_(strand),
      clock_(clock),
      options_(std::move(options)),
      events_(std::move(events)),
      backoff_(options_.backoff, random_seed()),
      retry_timer_(strand),
      alive_timer_(strand),
      beat_timer_(strand) {}

void CoordinatorLink::start() {
  if (state_ == State::kWaiting) dial();
}

void CoordinatorLink::stop(std::string_view reason) {
  if (state_ == State::kStopped) return;
  state_ = State::kStopped;
  ++connection_;
  acked_sequence_ = 0;
  retry_timer_.cancel();
  alive_timer_.cancel();
  beat_timer_.cancel();
  if (session_) session_->close(1000, reason);
  session_.reset();
  events_ = {};
}

void CoordinatorLink::dial() {
  const std::uint64_t mine = ++connection_;
  state_ = State::kConnecting;
  // Everything of the session's strand is moved to ours, in order, and dropped when a newer
  // connection exists.
  const auto here = [self = shared_from_this(), mine](std::function<void(CoordinatorLink&)> task) {
    self->strand_.post([self, mine, task = std::move(task)] {
      if (self->connection_ == mine) task(*self);
    });
  };
  net::WsHandlers handlers;
  handlers.on_open = [here] { here([](CoordinatorLink& link) { link.on_open(); }); };
  handlers.on_message = [here](std::string message, bool binary) {
    auto held = std::make_shared<std::string>(std::move(message));
    here([held, binary](CoordinatorLink& link) { link.on_message(std::move(*held), binary); });
  };
  handlers.on_closed = [here](std::string reason) {
    here([reason](CoordinatorLink& link) { link.disconnect({ErrorCode::kUnavailable, reason}); });
  };
  auto session = net::connect_websocket(io_, options_.websocket, std::move(handlers));
  if (!session.ok()) return disconnect(session.error());
  session_ = std::move(*session);
}

void CoordinatorLink::on_open() {
  state_ = State::kHandshake;
  handshake_.emplace(options_.credentials);
  session_->send(handshake_->hello(), /*binary=*/false);
  alive_timer_.after(options_.handshake_timeout, [self = shared_from_this(), mine = connection_] {
    if (self->connection_ == mine) {
      self->disconnect(
          {ErrorCode::kDeadlineExceeded, "the coordinator did not finish the handshake in time"});
    }
  });
}

void CoordinatorLink::on_message(std::string message, bool binary) {
  const std::uint64_t mine = connection_;
  if (Status handled = handle(message, binary); !handled.ok() && connection_ == mine)
    disconnect(handled.error());
}

Status CoordinatorLink::handle(std::string_view message, bool binary) {
  last_heard_ = clock_.now();
  if (state_ == State::kHandshake) {
    FLOTILLA_TRY(std::string proof, handshake_->on_message(message, binary));
    session_->send(std::move(proof), /*binary=*/true);
    channel_.emplace(handshake_->keys(), clock_);
    handshake_.reset();
    state_ = State::kRegistering;
    send(protocol::ProviderMessage(events_.make_register()));
    return ok_status();
  }
  if (!binary)
    return protocol::link_error(protocol::LinkFault::kUnexpectedMessage,
                                "text after the handshake");
  return handle_frame(message);
}

std::optional<Error> CoordinatorLink::plain_reject(std::string_view message) const {
  // The coordinator may find the proof wanting; it then has no sealed way to say so.
  if (state_ != State::kRegistering || channel_->num_opened() > 0) return std::nullopt;
  const auto header = protocol::parse_header(message);
  if (!header.ok() || header->kind != protocol::Reject::kKind) return std::nullopt;
  const auto decoded =
      protocol::decode_handshake(header->kind, message.substr(protocol::kHeaderBytes));
  if (!decoded.ok()) return std::nullopt;
  return protocol::from_wire(std::get<protocol::Reject>(*decoded).error);
}

Status CoordinatorLink::handle_frame(std::string_view message) {
  if (auto rejected = plain_reject(message)) return std::move(*rejected);
  FLOTILLA_TRY(const protocol::Frame frame, channel_->open(message));
  FLOTILLA_TRY(protocol::CoordinatorMessage decoded,
               protocol::decode_coordinator(frame.header.kind, frame.body));
  if (const auto* reject = std::get_if<protocol::Reject>(&decoded))
    return protocol::from_wire(reject->error);
  if (const auto* registered = std::get_if<protocol::Registered>(&decoded)) {
    on_registered(*registered);
    return ok_status();
  }
  if (const auto* ack = std::get_if<protocol::HeartbeatAck>(&decoded)) {
    acked_sequence_ = ack->sequence;
    acked_at_ = last_heard_;
    return ok_status();
  }
  if (state_ != State::kUp) {
    return protocol::link_error(
        protocol::LinkFault::kUnexpectedMessage,
        std::string(protocol::kind_name(frame.header.kind)) + " before registered");
  }
  events_.on_message(frame.header, std::move(decoded));
  return ok_status();
}

void CoordinatorLink::on_registered(const protocol::Registered& registered) {
  // A coordinator that asks for absurd intervals would make the node busy or deaf.
  heartbeat_interval_ = std::clamp(milliseconds(registered.heartbeat_interval_ms), milliseconds(20),
                                   milliseconds(60'000));
  dead_after_ = std::clamp(milliseconds(registered.dead_after_ms), 2 * heartbeat_interval_,
                           milliseconds(300'000));
  if (state_ == State::kUp) return;  // answer to a repeated Register
  state_ = State::kUp;
  was_registered_ = true;
  up_since_ = clock_.now();
  log::info("link_up", {{"coordinator", session_->peer()}, {"provider", registered.provider}});
  check_alive();
  beat();
  events_.on_up(registered);
}

bool CoordinatorLink::send(const protocol::ProviderMessage& message, const JobId& job,
                           std::uint32_t attempt) {
  if (state_ != State::kUp && state_ != State::kRegistering) return false;
  auto frame = channel_->seal_message(message, job, attempt);
  if (!frame.ok()) {
    log::error("link_message_unsendable", {{"reason", frame.error().message}});
    strand_.post([self = shared_from_this(), mine = connection_, error = frame.error()] {
      if (self->connection_ == mine) self->disconnect(error);
    });
    return false;
  }
  return session_->send(std::move(*frame), /*binary=*/true);
}

void CoordinatorLink::send_register() {
  if (state_ == State::kUp) send(protocol::ProviderMessage(events_.make_register()));
}

void CoordinatorLink::send_heartbeat() {
  if (state_ != State::kUp) return;
  protocol::Heartbeat heartbeat = events_.make_heartbeat();
  heartbeat.sequence = ++heartbeat_sequence_;
  if (acked_sequence_ > 0) {
    heartbeat.acked_sequence = acked_sequence_;
    heartbeat.ack_age_us = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(clock_.now() - acked_at_).count());
  }
  send(protocol::ProviderMessage(std::move(heartbeat)));
}

void CoordinatorLink::beat() {
  send_heartbeat();
  beat_timer_.after(heartbeat_interval_, [self = shared_from_this(), mine = connection_] {
    if (self->connection_ == mine && self->state_ == State::kUp) self->beat();
  });
}

void CoordinatorLink::check_alive() {
  const auto now = clock_.now();
  if (check_due_ != Clock::Instant{} && now - check_due_ > kSleptThrough) last_heard_ = now;
  // Part of a long message, on a slow line, is a sign of life.
  if (const std::uint64_t received = session_->received_bytes(); received != received_seen_) {
    received_seen_ = received;
    last_heard_ = now;
  }
  const auto silence = std::chrono::duration_cast<milliseconds>(now - last_heard_);
  if (silence >= dead_after_) {
    return disconnect({ErrorCode::kUnavailable, "nothing heard from the coordinator for " +
                                                    std::to_string(silence.count()) + " ms"});
  }
  const milliseconds wait = dead_after_ - silence + 1ms;
  check_due_ = now + wait;
  alive_timer_.after(wait, [self = shared_from_this(), mine = connection_] {
    if (self->connection_ == mine && self->state_ == State::kUp) self->check_alive();
  });
}

void CoordinatorLink::disconnect(const Error& error) {
  if (state_ == State::kStopped) return;
  const bool was_up = state_ == State::kUp;
  const auto lasted =
      was_up ? std::chrono::duration_cast<milliseconds>(clock_.now() - up_since_) : 0ms;
  ++connection_;
  state_ = State::kWaiting;
  alive_timer_.cancel();
  beat_timer_.cancel();
  check_due_ = {};
  if (session_) session_->abort();
  session_.reset();
  handshake_.reset();
  channel_.reset();
  const milliseconds wait = backoff_.next(lasted);
  log::warn(was_up ? "link_down" : "link_failed",
            {{"reason", error.message}, {"fault", error.param}, {"retry_in_ms", wait.count()}});
  retry_timer_.after(wait, [self = shared_from_this(), mine = connection_] {
    if (self->connection_ == mine && self->state_ == State::kWaiting) self->dial();
  });
  if (was_up) events_.on_down(error.message);
  if (!was_up && state_ != State::kStopped) events_.on_failed(error, was_registered_);
}

}  // namespace flotilla::provider
