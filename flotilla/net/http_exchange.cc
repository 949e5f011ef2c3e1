#include "flotilla/net/http_exchange.h"

#include <utility>

#include "flotilla/base/check.h"
#include "flotilla/net/http_connection.h"

namespace flotilla::net {

HttpExchangeImpl::HttpExchangeImpl(std::shared_ptr<HttpConnection> connection,
                                   std::shared_ptr<AnswerState> state, HttpRequest request,
                                   std::size_t write_queue_bytes)
    : connection_(std::move(connection)),
      state_(std::move(state)),
      request_(std::move(request)),
      write_queue_bytes_(write_queue_bytes) {}

HttpExchangeImpl::~HttpExchangeImpl() {
  bool abandoned_stream = false;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->ended || !state_->alive) return;
    abandoned_stream = state_->answered;
  }
  if (abandoned_stream) {
    abort();
  } else {
    send(connection_->make_error(500, "the server gave no answer"));
  }
}

void HttpExchangeImpl::send(HttpResponse response) {
  {
    std::lock_guard lock(state_->mutex);
    FLOTILLA_CHECK(!state_->answered, "an HTTP exchange was answered twice");
    state_->answered = state_->ended = true;
    state_->steps.emplace_back(AnswerWhole{std::move(response)});
  }
  post_flush();
}

void HttpExchangeImpl::begin_stream(HttpResponse head) {
  {
    std::lock_guard lock(state_->mutex);
    FLOTILLA_CHECK(!state_->answered, "an HTTP exchange was answered twice");
    state_->answered = true;
    state_->steps.emplace_back(AnswerBegin{std::move(head)});
  }
  post_flush();
}

bool HttpExchangeImpl::write(std::string piece) {
  bool room = true;
  {
    std::lock_guard lock(state_->mutex);
    FLOTILLA_CHECK(state_->answered, "write() before begin_stream()");
    if (state_->ended || !state_->alive || piece.empty()) return true;
    state_->step_bytes += piece.size();
    room = state_->step_bytes + state_->queued_bytes <= write_queue_bytes_;
    if (!room) state_->over_limit = true;
    state_->steps.emplace_back(AnswerPiece{std::move(piece)});
  }
  post_flush();
  return room;
}

void HttpExchangeImpl::end() {
  {
    std::lock_guard lock(state_->mutex);
    FLOTILLA_CHECK(state_->answered, "end() before begin_stream()");
    if (state_->ended) return;
    state_->ended = true;
    state_->steps.emplace_back(AnswerEnd{});
  }
  post_flush();
}

void HttpExchangeImpl::abort() {
  {
    std::lock_guard lock(state_->mutex);
    state_->answered = state_->ended = true;
    state_->steps.emplace_back(AnswerAbort{});
  }
  post_flush();
}

void HttpExchangeImpl::set_callbacks(std::function<void()> on_closed,
                                     std::function<void()> on_drained) {
  std::lock_guard lock(state_->mutex);
  if (state_->alive) {
    state_->on_closed = std::move(on_closed);
    state_->on_drained = std::move(on_drained);
  } else if (on_closed && !state_->ended) {
    connection_->strand().post(std::move(on_closed));  // the client left before anybody listened
  }
}

const Strand* HttpExchangeImpl::strand() const { return &connection_->strand(); }

void HttpExchangeImpl::post_flush() {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->flush_posted || !state_->alive) return;
    state_->flush_posted = true;
  }
  connection_->strand().post(
      [connection = connection_, state = state_] { connection->take_steps(state); });
}

}  // namespace flotilla::net
