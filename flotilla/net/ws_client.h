// Outgoing WebSocket connections.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "flotilla/base/result.h"
#include "flotilla/net/io_runtime.h"
#include "flotilla/net/ws_session.h"

namespace flotilla::net {

struct WsClientOptions {
  std::string url = {};      // ws://host:port/path or wss://...
  std::string ca_file = {};  // PEM; empty: the system's
  // Hex SHA-256 of the server certificate's public key; when set it replaces the check against a
  // CA.
  std::string pinned_public_key = {};
  std::chrono::milliseconds connect_timeout{10'000};  // name, TCP, TLS and upgrade together
  std::size_t max_message_bytes = 80u << 20;
};

// Starts a connection; errors of the URL are returned at once, all others arrive as on_closed.
Result<std::shared_ptr<WsSession>> connect_websocket(IoRuntime& io, const WsClientOptions& options,
                                                     WsHandlers handlers);

// What pinned_public_key must hold for the first certificate of a PEM file: hex SHA-256 of its DER
// public key.
Result<std::string> public_key_pin(const std::string& certificate_file);

// True for ws:// to 127.0.0.0/8, ::1 or localhost, and for wss://.
Result<bool> is_private_or_encrypted(const std::string& url);

}  // namespace flotilla::net
