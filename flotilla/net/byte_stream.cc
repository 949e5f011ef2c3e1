#include "flotilla/net/byte_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <cstring>
#include <optional>

#include "flotilla/net/asio_internal.inc"
#include "flotilla/net/socket_internal.inc"
#include "flotilla/net/tls_internal.inc"

namespace flotilla::net {

namespace asio = boost::asio;
using boost::system::error_code;
using Tls = asio::ssl::stream<asio::ip::tcp::socket&>;

// Shared with pending operations: Asio must not see the TLS engine freed under it.
struct ByteStream::Impl : std::enable_shared_from_this<ByteStream::Impl> {
  Impl(const Strand& s, std::unique_ptr<Socket> owned, std::shared_ptr<TlsContext> context,
       bool server)
      : strand(s), holder(std::move(owned)), tls_context(std::move(context)), is_server(server) {
    error_code ignored;
    socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    socket().set_option(asio::socket_base::keep_alive(true), ignored);
    const auto endpoint = socket().remote_endpoint(ignored);
    if (!ignored) {
      const std::string address = endpoint.address().to_string();
      peer = (endpoint.address().is_v6() ? "[" + address + "]" : address) + ":" +
             std::to_string(endpoint.port());
    }
    if (tls_context) tls.emplace(socket(), tls_context->context);
  }

  asio::ip::tcp::socket& socket() { return holder->socket; }

  Strand strand;
  std::unique_ptr<Socket> holder;
  std::shared_ptr<TlsContext> tls_context;  // must outlive `tls`
  std::optional<Tls> tls;
  bool is_server;
  std::string peer;
  std::string unread;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
};

ByteStream::ByteStream(const Strand& strand, std::unique_ptr<Socket> socket,
                       std::shared_ptr<TlsContext> tls, bool is_server)
    : impl_(std::make_shared<Impl>(strand, std::move(socket), std::move(tls), is_server)) {}

ByteStream::~ByteStream() { close(); }

void ByteStream::handshake(const std::string& host, Handler done) {
  if (!impl_->tls) {
    asio::post(impl_->strand.impl()->strand, [done = std::move(done)] { done({}, 0); });
    return;
  }
  if (!impl_->is_server) {
    SSL* ssl = impl_->tls->native_handle();
    error_code not_an_address;
    asio::ip::make_address(host, not_an_address);
    if (not_an_address) SSL_set_tlsext_host_name(ssl, host.c_str());
    if (SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE) {
      error_code ignored;
      impl_->tls->set_verify_callback(asio::ssl::host_name_verification(host), ignored);
    }
  }
  impl_->tls->async_handshake(
      impl_->is_server ? asio::ssl::stream_base::server : asio::ssl::stream_base::client,
      [impl = impl_, done = std::move(done)](error_code error) { done(error, 0); });
}

std::string ByteStream::peer_key_pin() const {
  if (!impl_->tls) return {};
  std::unique_ptr<X509, void (*)(X509*)> certificate(
      SSL_get1_peer_certificate(impl_->tls->native_handle()), &X509_free);
  return certificate ? public_key_pin(certificate.get()) : std::string();
}

void ByteStream::read_some(std::span<char> into, Handler done) {
  if (!impl_->unread.empty()) {
    const std::size_t n = std::min(into.size(), impl_->unread.size());
    std::memcpy(into.data(), impl_->unread.data(), n);
    impl_->unread.erase(0, n);
    asio::post(impl_->strand.impl()->strand, [done = std::move(done), n] { done({}, n); });
    return;
  }
  const auto buffer = asio::buffer(into.data(), into.size());
  auto handler = [impl = impl_, done = std::move(done)](error_code error, std::size_t n) {
    impl->bytes_read += n;
    done(error, n);
  };
  if (impl_->tls) {
    impl_->tls->async_read_some(buffer, std::move(handler));
  } else {
    impl_->socket().async_read_some(buffer, std::move(handler));
  }
}

void ByteStream::write_some(std::string_view data, Handler done) {
  const auto buffer = asio::buffer(data.data(), data.size());
  auto handler = [impl = impl_, done = std::move(done)](error_code error, std::size_t n) {
    impl->bytes_written += n;
    done(error, n);
  };
  if (impl_->tls) {
    impl_->tls->async_write_some(buffer, std::move(handler));
  } else {
    impl_->socket().async_write_some(buffer, std::move(handler));
  }
}

std::size_t ByteStream::try_read(std::span<char> into) {
  if (impl_->tls || !impl_->unread.empty() || !impl_->socket().is_open()) return 0;
  const ssize_t n = ::recv(impl_->socket().native_handle(), into.data(), into.size(), MSG_DONTWAIT);
  if (n <= 0) return 0;
  impl_->bytes_read += static_cast<std::uint64_t>(n);
  return static_cast<std::size_t>(n);
}

std::size_t ByteStream::try_write(std::string_view data) {
  if (impl_->tls || !impl_->socket().is_open()) return 0;
  // Straight to the kernel: Asio would post a completion, which costs as much as the call.
  const ssize_t n = ::send(impl_->socket().native_handle(), data.data(), data.size(),
                           MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n <= 0) return 0;  // whatever it is, the write that waits will see it
  impl_->bytes_written += static_cast<std::uint64_t>(n);
  return static_cast<std::size_t>(n);
}

void ByteStream::unread(std::string data) { impl_->unread.insert(0, data); }

void ByteStream::shutdown_write() {
  if (impl_->tls) {
    // Sends close_notify, and completes only when the peer answers or the socket is closed. FIN
    // follows with close(): clients take the alert for the end. Asio lets it share the socket with
    // a pending read.
    impl_->tls->async_shutdown([impl = impl_](error_code) {});
    return;
  }
  error_code ignored;
  impl_->socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

void ByteStream::close() {
  error_code ignored;
  impl_->socket().close(ignored);
}

void ByteStream::reset() {
  error_code ignored;
  impl_->socket().set_option(asio::socket_base::linger(true, 0), ignored);
  impl_->socket().close(ignored);
}

bool ByteStream::is_open() const { return impl_->socket().is_open(); }

bool ByteStream::peer_closed() const {
  if (!impl_->socket().is_open()) return true;
  pollfd entry{.fd = impl_->socket().native_handle(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

const Strand& ByteStream::strand() const { return impl_->strand; }
const std::string& ByteStream::peer() const { return impl_->peer; }
bool ByteStream::secure() const { return impl_->tls.has_value(); }
std::uint64_t ByteStream::bytes_read() const { return impl_->bytes_read; }
std::uint64_t ByteStream::bytes_written() const { return impl_->bytes_written; }

}  // namespace flotilla::net
