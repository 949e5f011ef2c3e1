#include "flotilla/provider/link_probe.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "flotilla/protocol/codec.h"
#include "flotilla/protocol/frame.h"

namespace flotilla::provider {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What the session's strand tells the waiting thread.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;                   // guarded by mutex, like all that follows
  std::optional<std::string> message;  // not yet taken
  bool binary = false;
  std::optional<std::string> closed;  // why

  // True when `what` came to hold; false at the deadline or when the connection has ended.
  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, milliseconds limit, Condition what) {
    changed.wait_for(lock, limit, [&] { return what() || closed.has_value(); });
    return what();
  }
};

net::WsHandlers handlers_for(const std::shared_ptr<Mailbox>& box) {
  return {.on_message =
              [box](std::string message, bool binary) {
                std::lock_guard lock(box->mutex);
                box->message = std::move(message);
                box->binary = binary;
                box->changed.notify_all();
              },
          .on_closed =
              [box](std::string reason) {
                std::lock_guard lock(box->mutex);
                box->closed = std::move(reason);
                box->changed.notify_all();
              },
          .on_open =
              [box] {
                std::lock_guard lock(box->mutex);
                box->open = true;
                box->changed.notify_all();
              }};
}

milliseconds since(steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
}

Error rejection(const std::string& message) {
  const auto header = protocol::parse_header(message);
  if (header.ok() && header->kind == protocol::Reject::kKind) {
    const auto decoded =
        protocol::decode_handshake(header->kind, message.substr(protocol::kHeaderBytes));
    if (decoded.ok()) return protocol::from_wire(std::get<protocol::Reject>(*decoded).error);
  }
  return {ErrorCode::kInternal, "the coordinator answered the handshake with something unknown"};
}

}  // namespace

Result<LinkProbe> probe_link(net::IoRuntime& io, const LinkProbeOptions& options,
                             const protocol::NodeCredentials& credentials) {
  const auto box = std::make_shared<Mailbox>();
  const auto started = steady_clock::now();
  FLOTILLA_TRY(const std::shared_ptr<net::WsSession> session,
               net::connect_websocket(io, options.websocket, handlers_for(box)));
  // The connection must not outlive this call.
  const std::unique_ptr<net::WsSession, void (*)(net::WsSession*)> guard(
      session.get(), [](net::WsSession* s) { s->close(1000, "probe"); });
  LinkProbe probe;
  std::unique_lock lock(box->mutex);
  // The connection has a timeout of its own; the second is for its report.
  if (!box->wait(lock, options.websocket.connect_timeout + milliseconds(1000),
                 [&] { return box->open; })) {
    return Error{ErrorCode::kUnavailable, box->closed.value_or("no connection in time")};
  }
  probe.connected = since(started);
  probe.peer = session->peer();

  protocol::NodeHandshake handshake(credentials);
  const auto asked = steady_clock::now();
  session->send(handshake.hello(), /*binary=*/false);
  if (!box->wait(lock, options.timeout, [&] { return box->message.has_value(); })) {
    return Error{ErrorCode::kDeadlineExceeded,
                 box->closed.value_or("the coordinator did not answer the handshake in time")};
  }
  probe.answered = since(asked);
  FLOTILLA_TRY(std::string proof,
               handshake.on_message(*std::exchange(box->message, {}), box->binary));
  session->send(std::move(proof), /*binary=*/true);
  if (box->wait(lock, options.grace, [&] { return box->message.has_value(); })) {
    return rejection(*box->message);
  }
  if (box->closed) return Error{ErrorCode::kUnavailable, *box->closed};
  return probe;
}

}  // namespace flotilla::provider
