// The thread-safe half of an answer: collects what any thread says and hands it to the connection's
// strand in batches. Internal to net/.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "flotilla/net/http.h"

namespace flotilla::net {

class HttpConnection;

struct AnswerWhole {
  HttpResponse response;
};
struct AnswerBegin {
  HttpResponse head;
};
struct AnswerPiece {
  std::string bytes;
};
struct AnswerEnd {};
struct AnswerAbort {};
using AnswerStep = std::variant<AnswerWhole, AnswerBegin, AnswerPiece, AnswerEnd, AnswerAbort>;

// Shared by the handle that the handler holds and by the connection.
struct AnswerState {
  std::mutex mutex;
  std::vector<AnswerStep> steps;     // guarded by mutex; not yet seen by the strand
  std::size_t step_bytes = 0;        // guarded by mutex; of the pieces in `steps`
  bool flush_posted = false;         // guarded by mutex
  bool answered = false;             // guarded by mutex; send() or begin_stream() was called
  bool ended = false;                // guarded by mutex; send(), end() or abort() was called
  bool over_limit = false;           // guarded by mutex; a write() said false, on_drained is owed
  std::function<void()> on_closed;   // guarded by mutex
  std::function<void()> on_drained;  // guarded by mutex
  std::atomic<bool> alive{true};
  std::atomic<std::size_t> queued_bytes{0};  // on the strand's side, not yet written to the socket
};

class HttpExchangeImpl final : public HttpExchange {
 public:
  HttpExchangeImpl(std::shared_ptr<HttpConnection> connection, std::shared_ptr<AnswerState> state,
                   HttpRequest request, std::size_t write_queue_bytes);
  ~HttpExchangeImpl() override;  // a handler that forgot to answer gives a 500

  const HttpRequest& request() const override { return request_; }
  void send(HttpResponse response) override;
  void begin_stream(HttpResponse head) override;
  bool write(std::string piece) override;
  void end() override;
  void abort() override;
  bool alive() const override { return state_->alive; }
  const Strand* strand() const override;
  void set_callbacks(std::function<void()> on_closed, std::function<void()> on_drained) override;

 private:
  void post_flush();

  const std::shared_ptr<HttpConnection> connection_;
  const std::shared_ptr<AnswerState> state_;
  const HttpRequest request_;
  const std::size_t write_queue_bytes_;
};

}  // namespace flotilla::net
