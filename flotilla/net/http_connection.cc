#include "flotilla/net/http_connection.h"

#include <algorithm>
#include <utility>

#include "flotilla/log/log.h"
#include "flotilla/net/ws_session_impl.h"

namespace flotilla::net {

using boost::system::error_code;
using namespace std::chrono_literals;

namespace {
constexpr std::size_t kReadChunk = 16u << 10;
// Requests that a client sends ahead wait here; beyond it reading stops until the answer is out.
constexpr std::size_t kMaxReadAhead = 64u << 10;
constexpr auto kClosePoll = 500ms;
}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<const HttpServerContext> context,
                               std::unique_ptr<ByteStream> stream, Hooks hooks)
    : context_(std::move(context)),
      strand_(stream->strand()),
      stream_(std::move(stream)),
      hooks_(std::move(hooks)),
      read_timer_(strand_),
      write_timer_(strand_) {}

void HttpConnection::start() {
  // One deadline for the TLS handshake and the first head together.
  read_timer_.after(context_->options.header_timeout,
                    [self = shared_from_this()] { self->close(false); });
  stream_->handshake({}, [self = shared_from_this()](error_code error, std::size_t) {
    if (self->phase_ == Phase::kClosed) return;
    if (error) return self->close(false);
    self->phase_ = Phase::kIdle;
    self->want_read();
  });
}

void HttpConnection::force_close() {
  strand_.post([self = shared_from_this()] { self->close(false); });
}

HttpResponse HttpConnection::make_error(unsigned status, std::string_view message) const {
  return context_->error_body(status, message);
}

void HttpConnection::want_read() {
  if (reading_ || phase_ == Phase::kClosed) return;
  std::span<char> into = idle_buffer_;
  if (phase_ == Phase::kAnswering) {
    if (input_.size() >= kMaxReadAhead) return watch_for_close();
    std::vector<char>().swap(read_buffer_);
  } else if (phase_ != Phase::kIdle) {
    read_buffer_.resize(kReadChunk);
    into = read_buffer_;
  }
  reading_ = true;
  stream_->read_some(into, [self = shared_from_this(), into](error_code error, std::size_t n) {
    self->reading_ = false;
    if (self->phase_ == Phase::kClosed) return;
    if (!error && self->phase_ != Phase::kLinger) {
      self->input_.append(into.data(), n);
      if (n == into.size() && self->phase_ == Phase::kIdle) self->read_rest();
    }
    self->on_read(error, n);
  });
}

// Most requests are there at once: they need no buffer of their own.
void HttpConnection::read_rest() {
  thread_local std::array<char, kReadChunk> buffer;
  input_.append(buffer.data(), stream_->try_read(buffer));
}

void HttpConnection::on_read(error_code error, std::size_t) {
  if (error) return on_read_end();
  process();
}

void HttpConnection::on_read_end() {
  // A client that only closed its sending side looks the same as one that left. Nobody waits for
  // the answer of a stream that cannot be told apart from a dead one, so the work is cancelled; an
  // answer already complete is still written out.
  if (phase_ == Phase::kAnswering && answer_complete_) {
    keep_alive_ = false;
    return;
  }
  close(false);
}

void HttpConnection::watch_for_close() {
  read_timer_.after(kClosePoll, [self = shared_from_this()] {
    if (self->phase_ != Phase::kAnswering) return;
    if (self->stream_->peer_closed()) return self->on_read_end();
    self->want_read();
  });
}

void HttpConnection::process() {
  while (true) {
    switch (phase_) {
      case Phase::kIdle: {
        const std::size_t blank = std::min(input_.find_first_not_of("\r\n"), input_.size());
        input_.erase(0, blank);
        if (input_.empty()) return want_read();
        phase_ = Phase::kHead;
        parser_.emplace(context_->options.max_header_bytes, context_->options.max_body_bytes);
        read_timer_.after(context_->options.header_timeout, [self = shared_from_this()] {
          self->protocol_error(408, "the request head did not arrive in time");
        });
        break;
      }
      case Phase::kHead:
      case Phase::kBody: {
        const RequestParser::Step step = parser_->feed(input_);
        input_.erase(0, step.consumed);
        switch (step.outcome) {
          case RequestParser::Step::Outcome::kNeedMore:
            return want_read();
          case RequestParser::Step::Outcome::kError:
            return protocol_error(step.status, step.message);
          case RequestParser::Step::Outcome::kHead:
            if (!on_head()) return;
            break;
          case RequestParser::Step::Outcome::kDone:
            return dispatch();
        }
        break;
      }
      case Phase::kHandshake:
      case Phase::kAnswering:
      case Phase::kLinger:
        return want_read();
      case Phase::kClosed:
        return;
    }
  }
}

bool HttpConnection::on_head() {
  keep_alive_ = parser_->keep_alive();
  is_head_request_ = parser_->request().method == "HEAD";
  if (parser_->is_websocket_upgrade()) {
    upgrade();
    return false;
  }
  phase_ = Phase::kBody;
  if (!parser_->has_body()) return true;
  if (refused_by_head()) return false;
  read_timer_.after(context_->options.body_timeout, [self = shared_from_this()] {
    self->protocol_error(408, "the request body did not arrive in time");
  });
  if (parser_->expects_continue() && input_.empty()) enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

// Whoever may not send the body at all must not make the server hold it.
bool HttpConnection::refused_by_head() {
  if (!context_->head_check) return false;
  HttpRequest& head = parser_->request();
  head.peer = stream_->peer();
  head.secure = stream_->secure();
  std::optional<HttpResponse> refusal = context_->head_check(head);
  if (refusal) answer_and_close(std::move(*refusal));
  return refusal.has_value();
}

void HttpConnection::dispatch() {
  read_timer_.cancel();
  phase_ = Phase::kAnswering;
  ++context_->num_answering;
  HttpRequest request = std::move(parser_->request());
  request.peer = stream_->peer();
  request.secure = stream_->secure();
  // A stream may stay open for long: what read its request goes now.
  is_http_1_0_ = parser_->is_http_1_0();
  parser_.reset();
  if (input_.empty()) std::string().swap(input_);
  answer_ = std::make_shared<AnswerState>();
  answer_->queued_bytes = output_bytes_;
  want_read();  // notices a client that leaves
  auto exchange = std::make_shared<HttpExchangeImpl>(
      shared_from_this(), answer_, std::move(request), context_->options.write_queue_bytes);
  try {
    context_->handler(std::move(exchange));
  } catch (const std::exception& e) {
    // The exchange answers 500 when its last holder lets go.
    log::error("http_handler_failed", {{"reason", e.what()}});
  }
}

void HttpConnection::upgrade() {
  if (!context_->ws_acceptor || reading_) {
    return protocol_error(reading_ ? 400 : 404, reading_
                                                    ? "a WebSocket upgrade must not be sent ahead"
                                                    : "there is no WebSocket here");
  }
  read_timer_.cancel();
  HttpRequest request = std::move(parser_->request());
  request.peer = stream_->peer();
  request.secure = stream_->secure();
  auto session = std::make_shared<WsSessionImpl>(strand_, context_->options.max_ws_message_bytes,
                                                 request.peer);
  auto handlers = context_->ws_acceptor(request, session);
  if (!handlers.ok()) {
    unsigned status = 400;
    switch (handlers.error().code) {
      case ErrorCode::kNotFound:
        status = 404;
        break;
      case ErrorCode::kUnauthenticated:
        status = 401;
        break;
      case ErrorCode::kPermissionDenied:
        status = 403;
        break;
      case ErrorCode::kResourceExhausted:
        status = 429;
        break;
      case ErrorCode::kUnavailable:
        status = 503;
        break;
      default:
        break;
    }
    return protocol_error(status, handlers.error().message);
  }
  phase_ = Phase::kClosed;
  hooks_.on_upgraded([weak = std::weak_ptr(session)] {
    if (auto alive = weak.lock()) alive->abort();
  });
  stream_->unread(std::move(input_));
  session->start_server(std::move(stream_), request, std::move(handlers).value(),
                        std::move(hooks_.on_gone));
}

void HttpConnection::protocol_error(unsigned status, std::string_view message) {
  if (phase_ != Phase::kIdle && phase_ != Phase::kHead && phase_ != Phase::kBody) return;
  answer_and_close(make_error(status, message));
}

void HttpConnection::answer_and_close(HttpResponse response) {
  read_timer_.cancel();
  phase_ = Phase::kAnswering;
  ++context_->num_answering;
  keep_alive_ = false;
  begin_answer(response, /*streamed=*/false);
  answer_complete_ = true;
  write_next();
}

}  // namespace flotilla::net
