// The answering half of HttpConnection.
#include <algorithm>
#include <charconv>
#include <utility>

#include "flotilla/base/check.h"
#include "flotilla/base/overloaded.h"
#include "flotilla/net/http_connection.h"
#include "flotilla/net/http_response.h"

namespace flotilla::net {

using boost::system::error_code;
using namespace std::chrono_literals;

namespace {
// Small pieces are joined up to this size, so that a burst of tokens costs one system call.
constexpr std::size_t kJoinBytes = 16u << 10;
constexpr auto kLingerTime = 2s;

std::optional<std::uint64_t> declared_length(const Headers& headers) {
  const auto text = headers.find("Content-Length");
  if (!text) return std::nullopt;
  std::uint64_t length = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), length);
  FLOTILLA_CHECK(parsed.ec == std::errc{} && parsed.ptr == text->data() + text->size(),
                 "the declared length of an answer is no number");
  return length;
}
}  // namespace

void HttpConnection::take_steps(const std::shared_ptr<AnswerState>& state) {
  std::vector<AnswerStep> steps;
  {
    std::lock_guard lock(state->mutex);
    steps.swap(state->steps);
    state->step_bytes = 0;
    state->flush_posted = false;
    if (state != answer_ || phase_ != Phase::kAnswering) return;
    // Before the lock goes, so that no write() sees its bytes in neither place.
    std::size_t bytes = output_bytes_;
    for (const AnswerStep& step : steps) {
      if (const auto* piece = std::get_if<AnswerPiece>(&step)) bytes += piece->bytes.size();
    }
    state->queued_bytes = bytes;
  }
  for (AnswerStep& step : steps) {
    apply(step);
    if (phase_ != Phase::kAnswering) return;
  }
  write_next();
  notify_drained(*state);
}

void HttpConnection::apply(AnswerStep& step) {
  std::visit(
      Overloaded{[&](AnswerWhole& whole) {
                   begin_answer(whole.response, /*streamed=*/false);
                   answer_complete_ = true;
                 },
                 [&](AnswerBegin& begin) { begin_answer(begin.head, /*streamed=*/true); },
                 [&](AnswerPiece& piece) {
                   if (answer_has_body_) {
                     enqueue(answer_is_chunked_ ? chunk(piece.bytes) : std::move(piece.bytes));
                   }
                 },
                 [&](AnswerEnd&) {
                   if (answer_is_chunked_ && answer_has_body_) enqueue("0\r\n\r\n");
                   answer_complete_ = true;
                 },
                 [&](AnswerAbort&) { close(/*reset=*/true); }},
      step);
}

void HttpConnection::begin_answer(HttpResponse& response, bool streamed) {
  // After a broken head the parser may not know method and version: HTTP/1.1 is then the safe
  // guess.
  const bool http_1_0 = parser_ ? parser_->is_http_1_0() : is_http_1_0_;
  answer_has_body_ = !is_head_request_ && status_has_body(response.status);
  const auto length = streamed ? declared_length(response.headers) : std::nullopt;
  const bool open_ended = streamed && !length;
  answer_is_chunked_ = open_ended && !http_1_0;
  if (wants_close(response.headers) || context_->draining || (open_ended && http_1_0))
    keep_alive_ = false;
  ResponseFraming framing{.http_1_0 = http_1_0, .keep_alive = keep_alive_};
  framing.length = length;
  if (open_ended) {
    framing.body = http_1_0 ? ResponseFraming::Body::kUntilClose : ResponseFraming::Body::kChunked;
  }
  enqueue(render_response_head(response, framing));
  if (!streamed && answer_has_body_) enqueue(std::move(response.body));
}

void HttpConnection::enqueue(std::string bytes) {
  if (bytes.empty()) return;
  output_bytes_ += bytes.size();
  // The first entry may be in flight: its memory must stay where it is.
  const std::size_t first_free = writing_ ? 1 : 0;
  if (output_.size() > first_free && output_.back().size() + bytes.size() <= kJoinBytes) {
    output_.back() += bytes;
  } else {
    output_.push_back(std::move(bytes));
  }
  if (phase_ == Phase::kBody) write_next();  // 100 Continue
}

void HttpConnection::write_next() {
  if (writing_ || phase_ == Phase::kClosed) return;
  while (!output_.empty()) {
    const std::string_view left = std::string_view(output_.front()).substr(output_offset_);
    const std::size_t n = stream_->try_write(left);
    sent(n);
    if (n < left.size()) break;
  }
  if (output_.empty()) {
    if (!answer_complete_ || phase_ != Phase::kAnswering) return;
    if (answer_) notify_drained(*answer_);
    return answer_written();
  }
  writing_ = true;
  last_progress_ = std::chrono::steady_clock::now();
  if (!write_timer_set_) {
    write_timer_set_ = true;
    write_timer_.after(context_->options.write_timeout,
                       [self = shared_from_this()] { self->check_write_progress(); });
  }
  stream_->write_some(
      std::string_view(output_.front()).substr(output_offset_),
      [self = shared_from_this()](error_code error, std::size_t n) { self->on_written(error, n); });
}

void HttpConnection::on_written(error_code error, std::size_t n) {
  writing_ = false;
  if (phase_ == Phase::kClosed) return;
  if (error) return close(false);
  sent(n);
  const std::shared_ptr<AnswerState> answer = answer_;
  write_next();
  if (answer) notify_drained(*answer);
}

void HttpConnection::sent(std::size_t n) {
  output_bytes_ -= n;
  output_offset_ += n;
  if (output_offset_ < output_.front().size()) return;
  output_.pop_front();
  output_offset_ = 0;
}

void HttpConnection::notify_drained(AnswerState& answer) {
  std::function<void()> drained;
  {
    std::lock_guard lock(answer.mutex);
    answer.queued_bytes = output_bytes_;
    if (!answer.over_limit ||
        answer.step_bytes + output_bytes_ >= context_->options.write_queue_bytes / 2)
      return;
    answer.over_limit = false;
    drained = answer.on_drained;
  }
  if (drained) drained();
}

// The timer is not reset at each write: it looks now and then whether the last progress is too long
// ago.
void HttpConnection::check_write_progress() {
  write_timer_set_ = false;
  if (!writing_ || phase_ == Phase::kClosed) return;
  const auto waited = std::chrono::steady_clock::now() - last_progress_;
  const auto limit = context_->options.write_timeout;
  if (waited >= limit) return close(/*reset=*/true);
  write_timer_set_ = true;
  write_timer_.after(std::chrono::ceil<std::chrono::milliseconds>(limit - waited),
                     [self = shared_from_this()] { self->check_write_progress(); });
}

void HttpConnection::answer_written() {
  --context_->num_answering;
  if (answer_) {
    answer_->alive = false;
    std::function<void()> closed,
        drained;  // destroyed outside the lock: they may hold the exchange
    std::lock_guard lock(answer_->mutex);
    closed.swap(answer_->on_closed);
    drained.swap(answer_->on_drained);
  }
  answer_.reset();
  answer_complete_ = false;
  is_head_request_ = is_http_1_0_ = false;
  parser_.reset();
  if (!keep_alive_ || context_->draining) return linger();
  phase_ = Phase::kIdle;
  read_timer_.after(context_->options.idle_timeout,
                    [self = shared_from_this()] { self->close(false); });
  if (input_.empty()) return want_read();
  // A client that sent ahead must not keep this call stack growing.
  strand_.post([self = shared_from_this()] { self->process(); });
}

// A socket closed with unread data makes the kernel send RST, which can destroy the answer on its
// way.
void HttpConnection::linger() {
  phase_ = Phase::kLinger;
  input_.clear();
  stream_->shutdown_write();
  read_timer_.after(kLingerTime, [self = shared_from_this()] { self->close(false); });
  want_read();
}

void HttpConnection::close(bool reset) {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kAnswering) --context_->num_answering;
  phase_ = Phase::kClosed;
  read_timer_.cancel();
  write_timer_.cancel();
  if (reset) {
    stream_->reset();
  } else {
    stream_->close();
  }
  std::function<void()> closed, drained;
  if (auto answer = std::exchange(answer_, nullptr)) {
    std::lock_guard lock(answer->mutex);
    answer->alive = false;
    closed.swap(answer->on_closed);
    drained.swap(answer->on_drained);
    if (answer->ended) closed = nullptr;
  }
  if (closed) closed();
  if (hooks_.on_gone) std::exchange(hooks_.on_gone, nullptr)();
}

}  // namespace flotilla::net
