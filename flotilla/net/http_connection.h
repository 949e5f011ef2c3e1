// One client connection: reads requests one after the other, hands each to the handler, writes its
// answer. Internal to net/.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/net/byte_stream.h"
#include "flotilla/net/http.h"
#include "flotilla/net/http_exchange.h"
#include "flotilla/net/http_parser.h"

namespace flotilla::net {

// What the connections of one server share. Constant once the server has started, apart from the
// atomics.
struct HttpServerContext {
  HttpServerOptions options;
  HttpHandler handler;
  HttpServer::ErrorBody error_body;
  WsAcceptor ws_acceptor;
  HttpHeadCheck head_check;
  std::atomic<bool> draining{false};          // answers say "Connection: close"
  mutable std::atomic<int> num_answering{0};  // connections that owe or write an answer
};

// Everything runs on the stream's strand unless said otherwise.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  struct Hooks {
    std::function<void()> on_gone;  // once, after the last call into the handler
    // The connection became a WebSocket session; on_gone will be called by the session instead.
    std::function<void(std::function<void()> abort_session)> on_upgraded;
  };
  HttpConnection(std::shared_ptr<const HttpServerContext> context,
                 std::unique_ptr<ByteStream> stream, Hooks hooks);

  void start();
  void force_close();  // any thread
  void take_steps(const std::shared_ptr<AnswerState>& state);
  HttpResponse make_error(unsigned status, std::string_view message) const;  // any thread
  const Strand& strand() const { return strand_; }                           // any thread

 private:
  enum class Phase {
    kHandshake,
    kIdle,  // between requests, nothing received
    kHead,
    kBody,
    kAnswering,  // a handler owes the answer, or it is being written
    kLinger,     // everything is written; waiting for the client to close
    kClosed,
  };

  void want_read();
  void read_rest();
  void on_read(boost::system::error_code error, std::size_t n);
  void on_read_end();
  void process();
  bool on_head();
  bool refused_by_head();
  void dispatch();
  void upgrade();
  void protocol_error(unsigned status, std::string_view message);
  void answer_and_close(HttpResponse response);

  void apply(AnswerStep& step);
  void begin_answer(HttpResponse& response, bool streamed);
  void enqueue(std::string bytes);
  void write_next();
  void sent(std::size_t n);  // of the output's first entry
  void on_written(boost::system::error_code error, std::size_t n);
  void notify_drained(AnswerState& answer);
  void check_write_progress();
  void answer_written();
  void linger();
  void close(bool reset);
  void watch_for_close();

  const std::shared_ptr<const HttpServerContext> context_;
  const Strand strand_;
  std::unique_ptr<ByteStream> stream_;
  Hooks hooks_;
  Timer read_timer_;
  Timer write_timer_;

  Phase phase_ = Phase::kHandshake;
  std::optional<RequestParser> parser_;
  std::string input_;              // received, not yet parsed
  std::vector<char> read_buffer_;  // large while a request arrives, freed while it is answered
  std::array<char, 256> idle_buffer_;
  bool reading_ = false;

  std::shared_ptr<AnswerState> answer_;  // of the current request; null for answers of our own
  bool is_head_request_ = false;
  bool is_http_1_0_ = false;
  bool answer_is_chunked_ = false;
  bool answer_has_body_ = true;
  bool answer_complete_ = false;  // every byte of it is in output_ or written
  bool keep_alive_ = true;
  std::deque<std::string> output_;
  std::size_t output_offset_ = 0;  // written bytes of output_.front()
  std::size_t output_bytes_ = 0;
  bool writing_ = false;
  bool write_timer_set_ = false;
  std::chrono::steady_clock::time_point last_progress_;
};

}  // namespace flotilla::net
