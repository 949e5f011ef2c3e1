// One WebSocket connection, on either side. Binary and text messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace flotilla::net {

// All run on the session's strand, in order; on_closed exactly once and last.
struct WsHandlers {
  std::function<void(std::string message, bool binary)> on_message;
  std::function<void(std::string reason)> on_closed;  // a sentence for logs
  std::function<void()> on_open = {};  // the handshake is complete: send() works from here
};

// Usable from any thread. A session lives while its connection is open or somebody holds it.
class WsSession {
 public:
  virtual ~WsSession() = default;
  // Queues a message; false when closed or when more than the limit (16 MiB) is queued, in which
  // case the session closes.
  virtual bool send(std::string message, bool binary) = 0;
  virtual void close(std::uint16_t code, std::string_view reason) = 0;  // graceful, bounded to 5 s
  virtual void abort() = 0;                                             // at once
  virtual std::size_t queued_bytes() const = 0;
  // Since the start, of messages that are still incomplete too: a peer that sends is alive.
  virtual std::uint64_t received_bytes() const = 0;
  // The longest message that is taken from now on; a longer one ends the connection. On the
  // session's strand, from a handler, or before the connection is open.
  virtual void set_max_message_bytes(std::size_t bytes) = 0;
  virtual std::string peer() const = 0;
  // Runs `task` on the session's strand.
  virtual void post(std::function<void()> task) = 0;
};

}  // namespace flotilla::net
