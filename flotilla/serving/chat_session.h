// One request of any API from its body to the last byte.
//
// Everything runs on the session's lane, except on_event() (any thread) and the callbacks of the
// exchange (the connection's strand), which only hand over. Nothing is written before the first
// content: until then a failure has its own HTTP status. The one exception: a stream that stays
// silent for `keepalive_after` gets its 200 and comments.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/net/http.h"
#include "flotilla/serving/api_call.h"
#include "flotilla/serving/chat_backend.h"
#include "flotilla/serving/lane.h"
#include "flotilla/serving/replies.h"
#include "flotilla/serving/session_set.h"

namespace flotilla::serving {

struct SessionOptions {
  std::size_t max_body_bytes = 32u << 20;
  std::chrono::milliseconds keepalive_after{10'000};     // zero: never before the first content
  std::chrono::milliseconds keepalive_interval{10'000};  // zero: no comments
};

class ChatSession : public std::enable_shared_from_this<ChatSession> {
 public:
  // What all sessions share. Outlives them.
  struct Context {
    ChatBackend& backend;
    const Clock& clock;
    const SessionOptions& options;
    SessionSet& sessions;
  };

  // What this request is, as far as the surface knows it without its body.
  struct Request {
    ApiKind api = ApiKind::kChat;
    Dialect dialect = Dialect::kOpenAi;
    std::shared_ptr<net::HttpExchange> exchange;
    Caller caller;
    net::Headers base_headers;  // go on every answer (request id, CORS)
  };

  ChatSession(const Context& context, Request request, std::unique_ptr<Lane> lane);
  ~ChatSession();

  // Once, on the connection's strand.
  void start();
  // From any thread: answers with an error (the surface is closing).
  void stop(Error error);
  // From any thread: events have come. For EventBatch.
  void wake();

 private:
  struct Choice {
    bool finished = false;
    api::Usage usage;
  };

  void begin();
  Status begin_work();
  bool on_event(ChatEvent event);
  void start_jobs(std::vector<api::ChatRequest> jobs);
  void drain();
  void handle(ChatEvent& event, std::string& frames);
  void after_writing();
  void on_drained();
  void on_timer();
  void arm_timer(std::chrono::milliseconds delay);

  void commit();
  void write(std::string frames);
  void complete(std::string& frames);
  void fail(const Error& error);
  void client_left();
  void send(net::HttpResponse response);
  void close(unsigned status, std::string_view outcome);
  api::Usage total_usage() const;

  const Context context_;
  const Request request_;
  const std::unique_ptr<Lane> lane_;
  const Clock::Instant started_;

  // On the lane only.
  std::vector<std::unique_ptr<ChatStream>> streams_;  // one per prompt
  std::unique_ptr<Answer> answer_;
  std::vector<Choice> choices_;
  std::size_t choices_per_job_ = 1;
  std::size_t num_finished_ = 0;
  std::int64_t num_tokens_seen_ = 0;
  bool streaming_ = false;
  bool committed_ = false;  // the 200 of a stream is out
  bool done_ = false;
  Clock::Instant last_write_;

  std::mutex mutex_;
  std::vector<ChatEvent> inbox_;  // guarded by mutex_
  bool drain_posted_ = false;     // guarded by mutex_
  bool reader_full_ = false;      // guarded by mutex_
  bool paused_ = false;  // guarded by mutex_; on_event() returned false since the last resume()
};

}  // namespace flotilla::serving
