#include "flotilla/coordinator/link/node_session.h"

#include "flotilla/log/log.h"
#include "flotilla/protocol/codec.h"
#include "flotilla/protocol/link_error.h"
#include "flotilla/serving/event_batch.h"

namespace flotilla::coordinator {
namespace {

constexpr std::size_t kMaxEarlyFrames = 4;
// A node that floods the core is cut before it takes the memory; a real one sends a few frames per
// step and job.
// Messages of one node that wait for the core strand.
constexpr std::size_t kMaxHandedOver = std::size_t{64} << 20;
constexpr std::size_t kMaxBurst = 128;  // messages of one node in one task of the core
constexpr int kIdleTurns = 2;
constexpr std::size_t kMessageCost = 1024;  // of a small message, beside its bytes
// The socket closes when more than 16 MiB wait in it.
constexpr std::size_t kSteeringBytes = 1u << 20;
constexpr std::size_t kMaxSocketBytes = (16u << 20) - (64u << 10);
constexpr std::uint16_t kClosePolicy = 1008;

}  // namespace

NodeSession::NodeSession(const Context& context, std::shared_ptr<net::WsSession> socket)
    : context_(context),
      socket_(std::move(socket)),
      opened_(context.clock.now()),
      handshake_(context.identity) {}

NodeSession::~NodeSession() = default;

void NodeSession::on_message(std::string message, bool binary) {
  switch (step_) {
    case Step::kHello:
      return on_hello(message, binary);
    case Step::kProof:
      return on_proof(message, binary);
    case Step::kSealed:
      return on_frame(message, binary);
    case Step::kBinding:
      if (!binary || early_.size() >= kMaxEarlyFrames) {
        return refuse(link_error(protocol::LinkFault::kUnexpectedMessage,
                                 "too many messages before the node is known"));
      }
      early_.push_back(std::move(message));
      return;
    case Step::kFinding:
      return refuse(
          link_error(protocol::LinkFault::kUnexpectedMessage, "a message before the offer"));
    case Step::kClosed:
      return;
  }
}

void NodeSession::on_hello(const std::string& message, bool binary) {
  auto hello = handshake_.on_hello(message, binary);
  if (!hello.ok()) return refuse(hello.error());
  step_ = Step::kFinding;
  context_.directory.find(hello->node, [weak = weak_from_this()](auto known) {
    auto self = weak.lock();
    if (!self) return;
    self->socket_->post(
        [self, known = std::move(known)]() mutable { self->on_found(std::move(known)); });
  });
}

void NodeSession::on_found(Result<std::optional<protocol::KnownNode>> known) {
  if (step_ != Step::kFinding) return;
  if (!known.ok()) {
    // What the database says is nothing for a peer that has proved nothing yet.
    log::error("node_lookup_failed", {{"reason", known.error().message}});
    return refuse({ErrorCode::kUnavailable, "the coordinator cannot look up nodes; try again"});
  }
  known_ = std::move(*known);
  auto offer = handshake_.offer(known_);
  if (!offer.ok()) return refuse(offer.error());
  step_ = Step::kProof;
  socket_->send(std::move(*offer), true);
}

void NodeSession::on_proof(const std::string& message, bool binary) {
  auto first_join = handshake_.on_proof(message, binary);
  if (!first_join.ok()) return refuse(first_join.error());
  socket_->set_max_message_bytes(kMaxMessageBytes);
  if (!*first_join) return seal();
  step_ = Step::kBinding;
  context_.directory.bind(
      *known_, handshake_.hello().public_key, [weak = weak_from_this()](Status bound) {
        auto self = weak.lock();
        if (!self) return;
        self->socket_->post([self, bound = std::move(bound)] {
          if (self->step_ != Step::kBinding) return;
          if (!bound.ok()) {
            log::error("node_binding_failed", {{"reason", bound.error().message}});
            return self->refuse({ErrorCode::kUnavailable,
                                 "the coordinator cannot store the node's key; try again"});
          }
          log::info("node_joined", {{"node", self->known_->node},
                                    {"key", fingerprint(self->handshake_.hello().public_key)}});
          self->seal();
        });
      });
}

void NodeSession::seal() {
  step_ = Step::kSealed;
  provider_ = protocol::provider_id(handshake_.hello().public_key);
  channel_.emplace(handshake_.keys(), context_.clock);
  for (std::string& frame : std::exchange(early_, {})) {
    if (step_ == Step::kSealed) on_frame(frame, true);
  }
}

void NodeSession::on_frame(const std::string& message, bool binary) {
  if (!binary) {
    return refuse(
        link_error(protocol::LinkFault::kUnexpectedMessage, "a text message on a sealed link"));
  }
  auto frame = channel_->open(message);
  if (!frame.ok()) return refuse(frame.error());
  auto decoded = protocol::decode_provider(frame->header.kind, frame->body);
  if (!decoded.ok()) return refuse(decoded.error());
  if (!joined_ && !std::holds_alternative<protocol::Register>(*decoded)) {
    return refuse(link_error(protocol::LinkFault::kUnexpectedMessage,
                             "the first sealed message must be register"));
  }
  hand_over(frame->header, std::move(*decoded), frame->body.size());
}

void NodeSession::hand_over(const protocol::FrameHeader& header, protocol::ProviderMessage message,
                            std::size_t bytes) {
  const std::size_t cost = bytes + kMessageCost;
  if (handed_over_bytes_.fetch_add(cost) + cost > kMaxHandedOver) {
    return refuse(
        {ErrorCode::kResourceExhausted, "the node sends faster than its messages can be handled"});
  }
  const bool joins = !std::exchange(joined_, true);
  burst_.push_back({header.job, header.attempt, joins, cost, std::move(message)});
  if (burst_.size() >= kMaxBurst) return pass_burst();
  if (!std::exchange(gathering_, true)) gather(0, 0);
}

// What has arrived together goes to the core strand together: a burst costs it one task, and each
// stream one write. Nobody waits for it: as soon as the socket has nothing more it is passed on.
void NodeSession::gather(std::size_t seen, int idle) {
  socket_->post([self = shared_from_this(), seen, idle] {
    const std::size_t now = self->burst_.size();
    // A frame that is there already comes within two turns of the strand.
    if (now > 0 && (now != seen || idle < kIdleTurns))
      return self->gather(now, now != seen ? 0 : idle + 1);
    self->gathering_ = false;
    self->pass_burst();
  });
}

void NodeSession::pass_burst() {
  if (burst_.empty()) return;
  context_.core([self = shared_from_this(), burst = std::exchange(burst_, {})]() mutable {
    const serving::EventBatch batch;
    for (Handed& m : burst) {
      self->handed_over_bytes_ -= m.cost;
      if (m.joins) {
        self->registered_ = true;
        self->context_.dispatcher.node_joined({self->provider_, self->known_->node, self},
                                              std::get<protocol::Register>(m.message));
      } else {
        self->context_.dispatcher.node_message(self->provider_, self.get(), m.job, m.attempt,
                                               std::move(m.message));
      }
    }
  });
}

void NodeSession::on_closed(const std::string& reason) {
  step_ = Step::kClosed;
  if (!joined_) return;
  pass_burst();
  context_.core([self = shared_from_this(), reason] {
    self->context_.dispatcher.node_closed(self->provider_, self.get(), reason);
  });
}

void NodeSession::abort_if_unregistered() {
  if (!registered_) socket_->abort();
}

void NodeSession::send(protocol::CoordinatorMessage message, const JobId& job,
                       std::uint32_t attempt) {
  socket_->post([self = shared_from_this(), message = std::move(message), job, attempt] {
    self->transmit(message, job, attempt);
  });
}

void NodeSession::send_prepare(std::shared_ptr<const protocol::Prepare> prepare,
                               std::uint32_t choice, const JobId& job, std::uint32_t attempt) {
  socket_->post([self = shared_from_this(), prepare = std::move(prepare), choice, job, attempt] {
    protocol::Prepare own = *prepare;
    own.choice = choice;
    self->transmit(std::move(own), job, attempt);
  });
}

void NodeSession::transmit(const protocol::CoordinatorMessage& message, const JobId& job,
                           std::uint32_t attempt) {
  if (step_ != Step::kSealed) return;
  auto encoded = protocol::encode(message);
  const bool is_prepare = std::holds_alternative<protocol::Prepare>(message);
  // Prompts leave room for the small messages that steer what already runs.
  const std::size_t limit = kMaxSocketBytes - (is_prepare ? kSteeringBytes : 0);
  const bool fits = encoded.ok() && encoded->body.size() + socket_->queued_bytes() < limit;
  if (fits) {
    socket_->send(channel_->seal(encoded->kind, job, attempt, encoded->body), true);
    return;
  }
  if (!is_prepare) {
    return refuse({ErrorCode::kResourceExhausted, "the node does not take its messages"});
  }
  // Answered in the node's place, so that the job goes elsewhere or back to the client.
  const bool never = !encoded.ok() || encoded->body.size() >= limit;
  protocol::Refuse refusal;
  refusal.reason = never ? protocol::RefuseReason::kInvalidRequest : protocol::RefuseReason::kBusy;
  refusal.error =
      never ? protocol::WireError{ErrorCode::kTooLarge,
                                  "the request exceeds what can be sent to a node (" +
                                      std::to_string(limit) + " bytes)"}
            : protocol::WireError{ErrorCode::kUnavailable, "the link to the node is full"};
  protocol::FrameHeader header;
  header.job = job;
  header.attempt = attempt;
  hand_over(header, refusal, 0);
}

void NodeSession::close(Error why) {
  socket_->post([self = shared_from_this(), why = std::move(why)] { self->refuse(why); });
}

void NodeSession::refuse(const Error& error) {
  if (step_ == Step::kClosed) return;
  const auto fault = protocol::link_fault(error);
  const std::string_view name = fault ? protocol::to_string(*fault) : to_string(error.code);
  log::warn("node_refused", {{"node", handshake_.hello().node},
                             {"peer", socket_->peer()},
                             {"fault", name},
                             {"reason", error.message},
                             {"detail", handshake_.refusal_detail()}});
  context_.metrics.node_refused(name);
  if (step_ == Step::kSealed) {
    auto frame = channel_->seal_message(
        protocol::CoordinatorMessage(protocol::Reject{protocol::to_wire(error)}));
    if (frame.ok()) socket_->send(std::move(*frame), true);
  } else {
    socket_->send(protocol::CoordinatorHandshake::reject(error, context_.identity.public_key()),
                  true);
  }
  step_ = Step::kClosed;
  socket_->close(kClosePolicy, name);
}

}  // namespace flotilla::coordinator
