#include "flotilla/net/ws_session.h"

#include <array>
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/buffers_iterator.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <cstring>
#include <utility>

#include "flotilla/net/asio_internal.inc"
#include "flotilla/net/ws_session_impl.h"

namespace flotilla::net {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;
using beast::error_code;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMaxQueuedBytes = 16u << 20;
constexpr auto kCloseTime = 5s;
constexpr auto kWriteProgress =
    20s;  // longer than the 15 s in which the link's own pings notice a dead peer
constexpr std::size_t kKeptReadBuffer = 256u << 10;

// Lets Beast run over ByteStream. Handlers are wrapped once more, which costs one allocation per
// operation.
class StreamAdapter {
 public:
  using executor_type = asio::any_io_executor;
  explicit StreamAdapter(std::unique_ptr<ByteStream> stream)
      : stream_(std::move(stream)), executor_(stream_->strand().impl()->executor) {}

  executor_type get_executor() noexcept { return executor_; }
  ByteStream& stream() { return *stream_; }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this](auto handler, const Buffers& into) {
          asio::mutable_buffer first;
          for (auto it = asio::buffer_sequence_begin(into); it != asio::buffer_sequence_end(into);
               ++it) {
            first = *it;
            if (first.size() > 0) break;
          }
          stream_->read_some({static_cast<char*>(first.data()), first.size()},
                             share(std::move(handler)));
        },
        token, buffers);
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this](auto handler, const Buffers& from) {
          // Frame header and payload travel in one packet.
          std::size_t joined = 0;
          std::string_view whole;
          for (auto it = asio::buffer_sequence_begin(from); it != asio::buffer_sequence_end(from);
               ++it) {
            const asio::const_buffer piece = *it;
            if (piece.size() == 0) continue;
            if (joined == 0 && piece.size() >= joined_.size()) {
              whole = {static_cast<const char*>(piece.data()), piece.size()};
              break;
            }
            const std::size_t n = std::min(piece.size(), joined_.size() - joined);
            std::memcpy(joined_.data() + joined, piece.data(), n);
            joined += n;
            if (joined == joined_.size()) break;
          }
          if (whole.empty()) whole = {joined_.data(), joined};
          stream_->write_some(whole, share(std::move(handler)));
        },
        token, buffers);
  }

 private:
  template <class H>
  static ByteStream::Handler share(H handler) {
    auto held = std::make_shared<H>(std::move(handler));
    return [held](error_code error, std::size_t n) { std::move (*held)(error, n); };
  }

  std::unique_ptr<ByteStream> stream_;
  executor_type executor_;
  std::array<char, 8192> joined_;
};

// Found by Beast through argument-dependent lookup.
[[maybe_unused]] void beast_close_socket(StreamAdapter& adapter) { adapter.stream().close(); }
[[maybe_unused]] void teardown(beast::role_type, StreamAdapter& adapter, error_code& ec) {
  adapter.stream().close();
  ec = {};
}
template <class Handler>
void async_teardown(beast::role_type, StreamAdapter& adapter, Handler&& handler) {
  adapter.stream().shutdown_write();
  asio::post(adapter.get_executor(), [h = std::make_shared<std::decay_t<Handler>>(
                                          std::forward<Handler>(handler))] { (*h)(error_code{}); });
}

}  // namespace

struct WsSessionImpl::Connection {
  explicit Connection(std::unique_ptr<ByteStream> stream) : ws(std::move(stream)) {}
  ByteStream& stream() { return ws.next_layer().stream(); }
  websocket::stream<StreamAdapter, /*deflate_supported=*/false> ws;
  beast::flat_buffer buffer;
  beast::http::request<beast::http::empty_body> upgrade;  // lives through the handshake
};

WsSessionImpl::WsSessionImpl(const Strand& strand, std::size_t max_message_bytes, std::string peer)
    : strand_(strand),
      max_message_bytes_(max_message_bytes),
      timer_(strand),
      write_timer_(strand),
      peer_(std::move(peer)) {}

WsSessionImpl::~WsSessionImpl() = default;

void WsSessionImpl::start_server(std::unique_ptr<ByteStream> stream, const HttpRequest& upgrade,
                                 WsHandlers handlers, std::function<void()> on_gone) {
  handlers_ = std::move(handlers);
  on_gone_ = std::move(on_gone);
  if (finished_ || closed_) {
    // Aborted by the acceptor itself.
    stream->close();
    finished_ = false;
    return finish("aborted");
  }
  connection_ = std::make_unique<Connection>(std::move(stream));
  auto& request = connection_->upgrade;
  request.method(beast::http::verb::get);
  request.version(11);
  request.target("/");
  for (const auto& [name, value] : upgrade.headers.entries) request.insert(name, value);
  timer_.after(kCloseTime, [self = shared_from_this()] {
    self->finish("the WebSocket handshake took too long");
  });
  connection_->ws.async_accept(request, [self = shared_from_this()](error_code error) {
    if (self->finished_) return;
    if (error) return self->finish("WebSocket handshake: " + error.message());
    self->opened();
  });
}

void WsSessionImpl::expect_client(WsHandlers handlers, std::chrono::milliseconds connect_timeout,
                                  std::function<void()> on_stop) {
  handlers_ = std::move(handlers);
  on_stop_ = std::move(on_stop);
  timer_.after(connect_timeout, [self = shared_from_this(), connect_timeout] {
    self->finish("no connection within " + std::to_string(connect_timeout.count()) + " ms");
  });
}

void WsSessionImpl::start_client(std::unique_ptr<ByteStream> stream, const WsUrl& url) {
  if (finished_) return stream->close();
  on_stop_ = nullptr;
  {
    std::lock_guard lock(mutex_);
    peer_ = stream->peer();
  }
  connection_ = std::make_unique<Connection>(std::move(stream));
  connection_->ws.async_handshake(
      url.authority(), url.target, [self = shared_from_this()](error_code error) {
        if (self->finished_) return;
        if (error) return self->finish("WebSocket handshake: " + error.message());
        self->opened();
      });
}

void WsSessionImpl::fail(std::string reason) { finish(std::move(reason)); }

void WsSessionImpl::opened() {
  timer_.cancel();
  auto& ws = connection_->ws;
  ws.read_message_max(max_message_bytes_);
  ws.auto_fragment(false);
  ws.write_buffer_bytes(16u << 10);  // of masking, on the client
  open_ = true;
  if (handlers_.on_open) handlers_.on_open();
  if (finished_) return;
  read_next();
  write_next();
}

// Piece by piece, so that a long message on a slow line is seen to move.
void WsSessionImpl::read_next() {
  connection_->ws.async_read_some(
      connection_->buffer, 0, [self = shared_from_this()](error_code error, std::size_t) {
        if (self->finished_) return;
        auto& connection = *self->connection_;
        self->received_bytes_ = connection.stream().bytes_read();
        if (error) {
          if (error == websocket::error::closed) {
            const auto& reason = connection.ws.reason();
            std::string text = "closed by the peer, code " + std::to_string(reason.code);
            if (!reason.reason.empty())
              text += ": " + std::string(reason.reason.data(), reason.reason.size());
            return self->finish(self->close_sent_ ? "closed" : std::move(text));
          }
          return self->finish("read: " + error.message());
        }
        if (connection.ws.is_message_done()) self->deliver();
        if (!self->finished_) self->read_next();
      });
}

void WsSessionImpl::deliver() {
  Connection& connection = *connection_;
  std::string message(static_cast<const char*>(connection.buffer.data().data()),
                      connection.buffer.size());
  const bool binary = connection.ws.got_binary();
  connection.buffer.clear();
  if (connection.buffer.capacity() > kKeptReadBuffer) connection.buffer.shrink_to_fit();
  handlers_.on_message(std::move(message), binary);
}

void WsSessionImpl::set_max_message_bytes(std::size_t bytes) {
  max_message_bytes_ = bytes;
  if (open_ && !finished_) connection_->ws.read_message_max(bytes);
}

bool WsSessionImpl::send(std::string message, bool binary) {
  bool post_take = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    queued_bytes_ += message.size();
    if (queued_bytes_ <= kMaxQueuedBytes) {
      incoming_.push_back({std::move(message), binary});
      post_take = !std::exchange(take_posted_, true);
    } else {
      closed_ = true;
    }
  }
  if (closed_ && !post_take) {
    if (queued_bytes_ > kMaxQueuedBytes) {
      strand_.post([self = shared_from_this()] {
        self->finish("more than 16 MiB were waiting to be sent");
      });
    }
    return false;
  }
  if (post_take) strand_.post([self = shared_from_this()] { self->take_messages(); });
  return true;
}

void WsSessionImpl::take_messages() {
  {
    std::lock_guard lock(mutex_);
    take_posted_ = false;
    for (Message& message : incoming_) output_.push_back(std::move(message));
    incoming_.clear();
  }
  write_next();
}

void WsSessionImpl::write_next() {
  if (!open_ || writing_ || finished_ || close_sent_) return;
  if (output_.empty()) {
    if (close_wanted_) start_close();
    return;
  }
  writing_ = true;
  if (!write_timer_set_) {
    write_timer_set_ = true;
    bytes_seen_ = connection_->stream().bytes_written();
    write_timer_.after(kWriteProgress,
                       [self = shared_from_this()] { self->check_write_progress(); });
  }
  connection_->ws.binary(output_.front().binary);
  const std::string& bytes = output_.front().bytes;
  connection_->ws.async_write(asio::buffer(bytes.data(), bytes.size()),
                              [self = shared_from_this()](error_code error, std::size_t) {
                                self->writing_ = false;
                                self->queued_bytes_ -= self->output_.front().bytes.size();
                                self->output_.pop_front();
                                if (self->finished_) return;
                                if (error) return self->finish("write: " + error.message());
                                self->write_next();
                              });
}

void WsSessionImpl::check_write_progress() {
  write_timer_set_ = false;
  if (!writing_ || finished_) return;
  const std::uint64_t written = connection_->stream().bytes_written();
  if (written == bytes_seen_) return finish("the peer takes no data");
  bytes_seen_ = written;
  write_timer_set_ = true;
  write_timer_.after(kWriteProgress, [self = shared_from_this()] { self->check_write_progress(); });
}

void WsSessionImpl::close(std::uint16_t code, std::string_view reason) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
  }
  strand_.post([self = shared_from_this(), code, text = std::string(reason.substr(0, 120))] {
    if (self->finished_ || self->close_wanted_) return;
    self->close_wanted_ = true;
    self->close_code_ = code;
    self->close_reason_ = text;
    if (!self->connection_) return self->finish("closed before the connection was made");
    self->timer_.after(kCloseTime,
                       [self] { self->finish("closed; the peer did not confirm in time"); });
    self->take_messages();
  });
}

void WsSessionImpl::start_close() {
  close_sent_ = true;
  websocket::close_reason reason(static_cast<websocket::close_code>(close_code_));
  reason.reason.assign(close_reason_.data(), close_reason_.size());
  // The pending read ends with error::closed once the peer has confirmed.
  connection_->ws.async_close(reason, [self = shared_from_this()](error_code error) {
    if (error && !self->finished_) self->finish("closed");
  });
}

void WsSessionImpl::abort() {
  closed_ = true;
  strand_.post([self = shared_from_this()] { self->finish("aborted"); });
}

std::string WsSessionImpl::peer() const {
  std::lock_guard lock(mutex_);
  return peer_;
}

void WsSessionImpl::finish(std::string reason) {
  if (finished_) return;
  finished_ = true;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  timer_.cancel();
  write_timer_.cancel();
  if (connection_) connection_->stream().close();
  if (on_stop_) std::exchange(on_stop_, nullptr)();
  WsHandlers handlers = std::exchange(handlers_, {});
  if (handlers.on_closed) handlers.on_closed(std::move(reason));
  handlers = {};
  if (on_gone_) std::exchange(on_gone_, nullptr)();
}

}  // namespace flotilla::net
