#include "flotilla/net/connector.h"

#include <boost/asio/ip/tcp.hpp>
#include <utility>
#include <vector>

#include "flotilla/base/text.h"
#include "flotilla/net/asio_internal.inc"
#include "flotilla/net/socket_internal.inc"

namespace flotilla::net {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using namespace std::chrono_literals;

namespace {
// While other addresses are left to try; a host whose IPv6 leads nowhere must not use up the whole
// time.
constexpr auto kPerAddress = 2500ms;
}  // namespace

struct Connector::Impl : std::enable_shared_from_this<Connector::Impl> {
  Impl(const Strand& s, ConnectTarget t, Done d)
      : strand(s),
        target(std::move(t)),
        done(std::move(d)),
        resolver(s.impl()->executor),
        timer(s) {}

  void resolve() {
    resolver.async_resolve(
        target.host, std::to_string(target.port),
        [self = shared_from_this()](error_code error, const tcp::resolver::results_type& results) {
          if (!self->done) return;
          if (error)
            return self->fail("cannot resolve '" + self->target.host + "': " + error.message());
          for (const auto& entry : results) self->endpoints.push_back(entry.endpoint());
          self->try_next("no address");
        });
  }

  void try_next(const std::string& last_failure) {
    if (next == endpoints.size()) {
      return fail("cannot connect to " + target.host + ":" + std::to_string(target.port) + ": " +
                  last_failure);
    }
    const tcp::endpoint endpoint = endpoints[next++];
    const std::size_t attempt = next;
    socket = std::make_unique<ByteStream::Socket>(tcp::socket(strand.impl()->executor));
    if (next < endpoints.size()) {
      timer.after(kPerAddress, [self = shared_from_this(), attempt] {
        if (!self->done || self->next != attempt || !self->socket) return;
        error_code ignored;
        self->socket->socket.close(ignored);  // ends the attempt below with an error
      });
    }
    socket->socket.async_connect(
        endpoint, [self = shared_from_this(), held = socket.get()](error_code error) {
          if (!self->done || self->socket.get() != held) return;
          self->timer.cancel();
          if (error) return self->try_next(error.message());
          self->handshake();
        });
  }

  void handshake() {
    stream =
        std::make_unique<ByteStream>(strand, std::move(socket), target.tls, /*is_server=*/false);
    stream->handshake(target.host, [self = shared_from_this()](error_code error, std::size_t) {
      if (!self->done) return;
      if (error) return self->fail("TLS with " + self->target.host + ": " + error.message());
      if (!self->target.key_pin.empty() &&
          !equal_constant_time(self->stream->peer_key_pin(), self->target.key_pin)) {
        return self->fail("TLS with " + self->target.host +
                          ": the server's public key is not the pinned one");
      }
      std::exchange(self->done, nullptr)(
          std::make_shared<std::unique_ptr<ByteStream>>(std::move(self->stream)));
    });
  }

  void fail(std::string reason) {
    if (stream) stream->close();
    std::exchange(done, nullptr)(Error{ErrorCode::kUnavailable, std::move(reason)});
  }

  void cancel() {
    done = nullptr;
    resolver.cancel();
    timer.cancel();
    error_code ignored;
    if (socket) socket->socket.close(ignored);
    if (stream) stream->close();
  }

  Strand strand;
  ConnectTarget target;
  Done done;  // empty once told or cancelled
  tcp::resolver resolver;
  Timer timer;
  std::vector<tcp::endpoint> endpoints;
  std::size_t next = 0;
  std::unique_ptr<ByteStream::Socket> socket;
  std::unique_ptr<ByteStream> stream;
};

Connector::Connector(const Strand& strand, ConnectTarget target, Done done)
    : impl_(std::make_shared<Impl>(strand, std::move(target), std::move(done))) {}
Connector::~Connector() = default;
void Connector::start() { impl_->resolve(); }
void Connector::cancel() { impl_->cancel(); }

}  // namespace flotilla::net
