#include "flotilla/net/http.h"

#include <atomic>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "flotilla/log/log.h"
#include "flotilla/net/asio_internal.inc"
#include "flotilla/net/file_limit.h"
#include "flotilla/net/http_connection.h"
#include "flotilla/net/socket_internal.inc"
#include "flotilla/net/tls_context.h"

namespace flotilla::net {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using namespace std::chrono_literals;

struct HttpServer::Impl : std::enable_shared_from_this<HttpServer::Impl> {
  Impl(IoRuntime& runtime, HttpServerOptions options, HttpHandler handler, ErrorBody error_body)
      : io(runtime), strand(runtime), acceptor(strand.impl()->executor), retry(strand) {
    context->options = std::move(options);
    context->handler = std::move(handler);
    context->error_body = std::move(error_body);
  }

  Status start();
  void accept_next();
  void on_accept(error_code error, const Strand& connection_strand, tcp::socket socket);
  void add_connection(const Strand& connection_strand, tcp::socket socket);
  void remove(std::uint64_t id);
  void close_all();
  std::shared_ptr<TlsContext> current_tls() {
    std::lock_guard lock(mutex);
    return tls;
  }

  IoRuntime& io;
  Strand strand;  // of the acceptor
  tcp::acceptor acceptor;
  Timer retry;
  std::uint16_t port = 0;
  std::shared_ptr<HttpServerContext> context = std::make_shared<HttpServerContext>();

  mutable std::mutex mutex;
  std::condition_variable gone;
  std::shared_ptr<TlsContext> tls;  // guarded by mutex
  std::unordered_map<std::uint64_t, std::function<void()>>
      connections;                // guarded by mutex; value: close it
  std::uint64_t next_id = 1;      // guarded by mutex
  bool accepting = false;         // guarded by mutex
  bool waiting_for_room = false;  // guarded by mutex
};

Status HttpServer::Impl::start() {
  // Without descriptors to spare, accepting fails and even answering from files does.
  const std::size_t files = raise_file_limit();
  const ConnectionRoom room = connection_room(files, context->options.max_connections);
  if (room.is_tight) {
    log::warn("connections_limited",
              {{"open_files", files}, {"max_connections", room.connections}});
  }
  context->options.max_connections = room.connections;
  const HttpServerOptions& options = context->options;
  const std::string where = options.host + ":" + std::to_string(options.port);
  if (options.tls) {
    FLOTILLA_TRY(auto made, make_server_tls(*options.tls));
    std::lock_guard lock(mutex);
    tls = std::move(made);
  }
  error_code error;
  auto address =
      asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
  if (error) {
    return Error{
        ErrorCode::kInvalidArgument,
        "cannot listen on '" + where + "': the host must be an IP address of this machine"};
  }
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    error_code ignored;
    acceptor.close(ignored);
    return Error{error == asio::error::access_denied ? ErrorCode::kPermissionDenied
                                                     : ErrorCode::kUnavailable,
                 "cannot listen on " + where + ": " + error.message()};
  }
  port = acceptor.local_endpoint().port();
  {
    std::lock_guard lock(mutex);
    accepting = true;
  }
  strand.post([self = shared_from_this()] { self->accept_next(); });
  return ok_status();
}

void HttpServer::Impl::accept_next() {
  if (!acceptor.is_open()) return;
  {
    std::lock_guard lock(mutex);
    if (!accepting) return;
    if (connections.size() >= context->options.max_connections) {
      // The kernel's backlog holds the newcomers until somebody leaves.
      waiting_for_room = true;
      return;
    }
  }
  Strand connection_strand(io);
  acceptor.async_accept(
      connection_strand.impl()->executor,
      asio::bind_executor(strand.impl()->executor, [self = shared_from_this(), connection_strand](
                                                       error_code error, tcp::socket s) {
        self->on_accept(error, connection_strand, std::move(s));
      }));
}

void HttpServer::Impl::on_accept(error_code error, const Strand& connection_strand,
                                 tcp::socket socket) {
  if (error == asio::error::operation_aborted || !acceptor.is_open()) return;
  if (error) {
    // Out of file descriptors or memory, mostly: trying again at once would spin.
    log::warn("http_accept_failed", {{"reason", error.message()}});
    return retry.after(100ms, [self = shared_from_this()] { self->accept_next(); });
  }
  add_connection(connection_strand, std::move(socket));
  accept_next();
}

void HttpServer::Impl::add_connection(const Strand& connection_strand, tcp::socket socket) {
  auto stream = std::make_unique<ByteStream>(
      connection_strand, std::make_unique<ByteStream::Socket>(std::move(socket)), current_tls(),
      /*is_server=*/true);
  std::lock_guard lock(mutex);
  if (!accepting) return;
  const std::uint64_t id = next_id++;
  HttpConnection::Hooks hooks;
  hooks.on_gone = [self = shared_from_this(), id] { self->remove(id); };
  hooks.on_upgraded = [self = shared_from_this(), id](std::function<void()> abort) {
    std::lock_guard inner(self->mutex);
    const auto entry = self->connections.find(id);
    if (entry != self->connections.end()) entry->second = std::move(abort);
  };
  auto connection = std::make_shared<HttpConnection>(context, std::move(stream), std::move(hooks));
  connections.emplace(id, [weak = std::weak_ptr(connection)] {
    if (auto alive = weak.lock()) alive->force_close();
  });
  connection_strand.post([connection] { connection->start(); });
}

void HttpServer::Impl::remove(std::uint64_t id) {
  std::lock_guard lock(mutex);
  connections.erase(id);
  if (std::exchange(waiting_for_room, false))
    strand.post([self = shared_from_this()] { self->accept_next(); });
  if (connections.empty()) gone.notify_all();
}

void HttpServer::Impl::close_all() {
  std::vector<std::function<void()>> closers;
  std::lock_guard lock(mutex);
  for (const auto& entry : connections) closers.push_back(entry.second);
  for (const auto& close : closers) close();  // only posts
}

HttpServer::HttpServer(IoRuntime& io, HttpServerOptions options, HttpHandler handler,
                       ErrorBody error_body)
    : impl_(std::make_shared<Impl>(io, std::move(options), std::move(handler),
                                   std::move(error_body))) {}

HttpServer::~HttpServer() {
  stop_accepting();
  const auto give_up = std::chrono::steady_clock::now() + 5s;
  while (true) {
    // Repeated: an upgrade may swap the closer of a connection while we walk.
    impl_->close_all();
    std::unique_lock lock(impl_->mutex);
    if (impl_->gone.wait_for(lock, 100ms, [this] { return impl_->connections.empty(); })) return;
    if (impl_->io.impl().context.stopped() || std::chrono::steady_clock::now() > give_up) return;
  }
}

void HttpServer::set_head_check(HttpHeadCheck check) {
  impl_->context->head_check = std::move(check);
}

void HttpServer::set_ws_acceptor(WsAcceptor acceptor) {
  impl_->context->ws_acceptor = std::move(acceptor);
}

Status HttpServer::start() { return impl_->start(); }

std::uint16_t HttpServer::port() const { return impl_->port; }

Status HttpServer::reload_certificate() {
  if (!impl_->context->options.tls) return ok_status();
  FLOTILLA_TRY(auto made, make_server_tls(*impl_->context->options.tls));
  std::lock_guard lock(impl_->mutex);
  impl_->tls = std::move(made);
  return ok_status();
}

void HttpServer::stop_accepting() {
  impl_->context->draining = true;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->accepting = false;
  }
  impl_->strand.post([impl = impl_] {
    error_code ignored;
    impl->acceptor.close(ignored);
    impl->retry.cancel();
  });
}

void HttpServer::flush(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (impl_->context->num_answering > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(5ms);
  }
}

std::size_t HttpServer::num_connections() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->connections.size();
}

}  // namespace flotilla::net
