// Accepts the WebSockets of nodes at /v1/link.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "flotilla/coordinator/link/join_limiter.h"
#include "flotilla/coordinator/link/node_session.h"
#include "flotilla/net/http.h"

namespace flotilla::coordinator {

inline constexpr std::string_view kLinkPath = "/v1/link";

// Thread-safe. Must outlive the server whose acceptor it is.
class LinkAcceptor {
 public:
  LinkAcceptor(NodeSession::Context context, std::chrono::milliseconds handshake_timeout);
  net::WsAcceptor acceptor();
  // Cuts connections that did not register in time. Every second or so.
  void tick();
  // No further nodes.
  void stop() { stopped_ = true; }

 private:
  const NodeSession::Context context_;
  const std::chrono::milliseconds handshake_timeout_;
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::vector<std::weak_ptr<NodeSession>> unregistered_;  // guarded by mutex_
  JoinLimiter limiter_;                                   // guarded by mutex_
};

}  // namespace flotilla::coordinator
