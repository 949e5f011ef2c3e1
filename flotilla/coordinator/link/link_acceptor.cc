#include "flotilla/coordinator/link/link_acceptor.h"

namespace flotilla::coordinator {
namespace {

constexpr std::size_t kMaxUnregistered = 4'096;

}  // namespace

LinkAcceptor::LinkAcceptor(NodeSession::Context context,
                           std::chrono::milliseconds handshake_timeout)
    : context_(std::move(context)), handshake_timeout_(handshake_timeout) {}

net::WsAcceptor LinkAcceptor::acceptor() {
  return [this](const net::HttpRequest& request,
                std::shared_ptr<net::WsSession> socket) -> Result<net::WsHandlers> {
    if (request.path != kLinkPath)
      return Error{ErrorCode::kNotFound, "no WebSocket is served at this path"};
    if (stopped_) return Error{ErrorCode::kUnavailable, "the coordinator is shutting down"};
    {
      std::lock_guard lock(mutex_);
      if (!limiter_.admit(socket->peer(), context_.clock.now())) {
        return Error{ErrorCode::kUnavailable, "too many nodes are joining at once; try again"};
      }
    }
    socket->set_max_message_bytes(protocol::kMaxHandshakeBytes);
    auto session = std::make_shared<NodeSession>(context_, std::move(socket));
    {
      std::lock_guard lock(mutex_);
      if (unregistered_.size() >= kMaxUnregistered) {
        return Error{ErrorCode::kUnavailable, "too many nodes are joining at once"};
      }
      unregistered_.push_back(session);
    }
    net::WsHandlers handlers;
    handlers.on_message = [session](std::string message, bool binary) {
      session->on_message(std::move(message), binary);
    };
    handlers.on_closed = [session](std::string reason) { session->on_closed(reason); };
    return handlers;
  };
}

void LinkAcceptor::tick() {
  const Clock::Instant now = context_.clock.now();
  std::vector<std::shared_ptr<NodeSession>> late;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(unregistered_, [&](const std::weak_ptr<NodeSession>& weak) {
      auto session = weak.lock();
      if (!session || session->registered()) return true;
      if (now - session->opened() < handshake_timeout_) return false;
      late.push_back(std::move(session));
      return true;
    });
  }
  for (const auto& session : late) session->abort_if_unregistered();
}

}  // namespace flotilla::coordinator
