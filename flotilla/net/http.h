// HTTP messages and the server. Everything of Asio, Beast and OpenSSL stays behind these classes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/net/io_runtime.h"
#include "flotilla/net/ws_session.h"

namespace flotilla::net {

struct Headers {
  std::vector<std::pair<std::string, std::string>> entries;
  // First value; names compare without case. nullopt when absent.
  std::optional<std::string_view> find(std::string_view name) const;
  std::vector<std::string_view> find_all(std::string_view name) const;
  void add(std::string name, std::string value) {
    entries.emplace_back(std::move(name), std::move(value));
  }
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // percent-decoded, without the query
  std::string query;   // raw
  Headers headers = {};
  std::string body = {};
  std::string peer;  // "127.0.0.1:5555"
  bool secure = false;
};

struct HttpResponse {
  unsigned status = 200;
  Headers headers = {};
  std::string body = {};
};

// The answer to one request. Usable from any thread; calls after the connection went away do
// nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // A whole answer. Once, and not after begin_stream.
  virtual void send(HttpResponse response) = 0;
  // Opens an answer (body ignored): chunked, or of its Content-Length. Then write(), then end().
  virtual void begin_stream(HttpResponse head) = 0;
  // Queues one piece. False when the queue for this connection is over its limit (the piece is
  // still queued): the caller should pause its source until on_drained.
  virtual bool write(std::string piece) = 0;
  virtual void end() = 0;
  // Closes the connection without a proper end, so that the client sees a broken stream.
  virtual void abort() = 0;
  virtual bool alive() const = 0;
  // The connection's: who answers from there wakes no other thread. nullptr where there is no
  // connection (tests).
  virtual const Strand* strand() const { return nullptr; }
  // `on_closed` runs once when the client goes away before the answer is complete; `on_drained`
  // whenever the queue has fallen below half its limit after write() returned false. Both on the
  // connection's strand. Set before answering.
  virtual void set_callbacks(std::function<void()> on_closed, std::function<void()> on_drained) = 0;
};

// Called on the connection's strand once head and body have arrived; must not block. Exactly one
// answer per exchange.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;
// Called on the connection's strand when the head of a request with a body has arrived: an answer
// here refuses it before its body is read, and closes the connection. Must not block.
using HttpHeadCheck = std::function<std::optional<HttpResponse>(const HttpRequest& head)>;
// Decides about a WebSocket upgrade: return handlers to accept, or an Error to refuse (404/401).
using WsAcceptor =
    std::function<Result<WsHandlers>(const HttpRequest&, std::shared_ptr<WsSession>)>;

struct TlsFiles {
  std::string certificate_file;  // PEM chain
  std::string key_file;          // PEM
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free port
  std::optional<TlsFiles> tls = {};
  std::size_t max_body_bytes = 32u << 20;
  std::size_t max_header_bytes = 32u << 10;
  std::size_t max_connections = 20'000;
  std::size_t write_queue_bytes = 1u << 20;          // per connection, before write() says false
  std::chrono::milliseconds header_timeout{15'000};  // whole head
  std::chrono::milliseconds body_timeout{60'000};    // whole body
  std::chrono::milliseconds idle_timeout{75'000};    // between requests on one connection
  std::chrono::milliseconds write_timeout{60'000};   // a write without progress
  std::size_t max_ws_message_bytes = 80u << 20;
};

// Protocol errors (bad head, body too large, timeouts) are answered by the server itself through
// `error_body`, which turns a status and a sentence into a body of the surface's own shape.
class HttpServer {
 public:
  using ErrorBody = std::function<HttpResponse(unsigned status, std::string_view message)>;
  HttpServer(IoRuntime& io, HttpServerOptions options, HttpHandler handler, ErrorBody error_body);
  ~HttpServer();                              // closes every connection, then waits
  void set_ws_acceptor(WsAcceptor acceptor);  // before start()
  void set_head_check(HttpHeadCheck check);   // before start()
  Status start();                             // binds and listens; errors name address and reason
  std::uint16_t port() const;                 // after start()
  Status reload_certificate();  // connections made from now on use the new files; on error the old
                                // ones stay
  void stop_accepting();        // drain: existing connections go on
  // After stop_accepting(): waits until no connection has an answer to write, at most `limit`.
  void flush(std::chrono::milliseconds limit);
  std::size_t num_connections() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace flotilla::net
