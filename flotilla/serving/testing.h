// Stand-ins for the network, the backend and time.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/json/json.h"
#include "flotilla/serving/http_surface.h"

namespace flotilla::serving {

// Lanes that run when told to, on a clock that moves when told to. One thread.
class FakeLoop {
 public:
  FakeClock clock;

  LaneFactory lanes() {
    return [this](const net::HttpExchange&) { return std::make_unique<FakeLane>(*this); };
  }
  void run() {
    while (!tasks_.empty()) {
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }
  void advance(std::chrono::milliseconds by) {
    const auto end = clock.now() + by;
    for (;;) {
      auto due = timers_.end();
      for (auto it = timers_.begin(); it != timers_.end(); ++it) {
        if (it->second.at <= end && (due == timers_.end() || it->second.at < due->second.at))
          due = it;
      }
      if (due == timers_.end()) break;
      auto task = std::move(due->second.task);
      if (due->second.at > clock.now()) clock.advance(due->second.at - clock.now());
      timers_.erase(due);
      task();
      run();
    }
    clock.advance(end - clock.now());
  }
  std::size_t num_timers() const { return timers_.size(); }

 private:
  struct Setting {
    Clock::Instant at;
    std::function<void()> task;
  };
  class FakeLane final : public Lane {
   public:
    explicit FakeLane(FakeLoop& loop) : loop_(loop) {}
    ~FakeLane() override { loop_.timers_.erase(this); }
    void post(std::function<void()> task) override { loop_.tasks_.push_back(std::move(task)); }
    void after(std::chrono::milliseconds delay, std::function<void()> task) override {
      loop_.timers_[this] = {loop_.clock.now() + delay, std::move(task)};
    }
    void cancel_timer() override { loop_.timers_.erase(this); }

   private:
    FakeLoop& loop_;
  };
  std::deque<std::function<void()>> tasks_;
  std::map<const Lane*, Setting> timers_;
};

class FakeExchange final : public net::HttpExchange {
 public:
  explicit FakeExchange(net::HttpRequest request) : request_(std::move(request)) {}
  const net::HttpRequest& request() const override { return request_; }
  void send(net::HttpResponse response) override {
    ASSERT_TRUE(!begun && !sent) << "answered twice";
    sent = true;
    head = std::move(response);
    body = head.body;
  }
  void begin_stream(net::HttpResponse response) override {
    ASSERT_TRUE(!begun && !sent) << "answered twice";
    begun = true;
    head = std::move(response);
  }
  bool write(std::string piece) override {
    EXPECT_TRUE(begun && !ended) << "write outside a stream";
    pieces.push_back(piece);
    body += piece;
    return has_room;
  }
  void end() override {
    EXPECT_TRUE(begun && !ended);
    ended = true;
  }
  void abort() override { ended = true; }
  bool alive() const override { return true; }
  void set_callbacks(std::function<void()> on_closed, std::function<void()> on_drained) override {
    closed_ = std::move(on_closed);
    drained_ = std::move(on_drained);
  }

  void client_leaves() { closed_(); }
  void queue_drains() {
    has_room = true;
    drained_();
  }
  std::string header(std::string_view name) const {
    return std::string(head.headers.find(name).value_or(""));
  }
  bool complete() const { return sent || ended; }

  bool sent = false, begun = false, ended = false, has_room = true;
  net::HttpResponse head;
  std::string body;
  std::vector<std::string> pieces;

 private:
  const net::HttpRequest request_;
  std::function<void()> closed_, drained_;
};

// A backend that does what the test says.
class FakeBackend final : public ChatBackend {
 public:
  struct Call {
    api::ChatRequest request;
    Caller caller;
    std::function<bool(ChatEvent)> emit;
    bool cancelled = false, destroyed = false;
    int num_resumes = 0;
  };
  std::vector<std::shared_ptr<Call>> calls;
  std::vector<ModelEntry> entries = {{"org/tiny", 5, "flotilla", 2048}};
  std::string key;  // empty: no keys are configured
  std::string why_not;

  std::vector<ModelEntry> models() const override { return entries; }
  std::unique_ptr<ChatStream> start(api::ChatRequest request, const Caller& caller,
                                    std::function<bool(ChatEvent)> on_event) override {
    auto call = std::make_shared<Call>();
    call->request = std::move(request);
    call->caller = caller;
    call->emit = std::move(on_event);
    calls.push_back(call);
    return std::make_unique<Stream>(call);
  }
  Result<Caller> authenticate(std::optional<std::string_view> given) const override {
    if (key.empty() || given == key)
      return Caller{.request_id = {}, .tenant = "t", .account_id = 1, .key_id = 2};
    return Error{ErrorCode::kUnauthenticated, "unknown API key"};
  }
  bool ready(std::string* reason) const override {
    *reason = why_not;
    return why_not.empty();
  }

 private:
  class Stream final : public ChatStream {
   public:
    explicit Stream(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    ~Stream() override { call_->destroyed = true; }
    void cancel() override { call_->cancelled = true; }
    void resume() override { ++call_->num_resumes; }

   private:
    std::shared_ptr<Call> call_;
  };
};

inline ChatEvent content(std::string text, std::vector<std::int32_t> ids = {1}, int choice = 0) {
  ChatEvent event;
  event.choice = choice;
  event.ids = std::move(ids);
  event.deltas.push_back({.channel = ChatDelta::Channel::kContent,
                          .text = std::move(text),
                          .call_id = {},
                          .call_name = {}});
  return event;
}
inline ChatEvent call_piece(int index, std::string name, std::string text, std::string id = {}) {
  ChatEvent event;
  event.deltas.push_back({.channel = ChatDelta::Channel::kToolCall,
                          .text = std::move(text),
                          .call_index = index,
                          .call_id = std::move(id),
                          .call_name = std::move(name)});
  return event;
}
inline ChatEvent finish(ChatFinish::Reason reason = ChatFinish::Reason::kStop,
                        api::Usage usage = {3, 2, 0, 0}, int choice = 0) {
  ChatEvent event;
  event.choice = choice;
  event.finish = ChatFinish{.reason = reason, .error = {}, .usage = usage};
  return event;
}
inline ChatEvent failure(Error error) {
  ChatEvent event = finish(ChatFinish::Reason::kError, {});
  event.finish->error = std::move(error);
  return event;
}

// The JSON values of the data frames; [DONE] as a string; comments left out.
inline std::vector<boost::json::value> frames(const std::string& body) {
  std::vector<boost::json::value> out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "a frame without its end";
      break;
    }
    const std::string frame = body.substr(at, end - at);
    at = end + 2;
    if (frame == "data: [DONE]") {
      out.emplace_back("[DONE]");
    } else if (frame.starts_with("data: ")) {
      auto value = json::parse(frame.substr(6));
      EXPECT_TRUE(value.ok()) << frame;
      out.push_back(value.ok() ? *value : boost::json::value());
    } else {
      EXPECT_TRUE(frame.starts_with(":")) << frame;
    }
  }
  return out;
}

// The events of a stream that names them, with their data.
inline std::vector<std::pair<std::string, boost::json::value>> named_events(
    const std::string& body) {
  std::vector<std::pair<std::string, boost::json::value>> out;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "a frame without its end";
      break;
    }
    const std::string frame = body.substr(at, end - at);
    at = end + 2;
    if (frame.starts_with(":")) continue;
    const std::size_t line = frame.find("\ndata: ");
    if (!frame.starts_with("event: ") || line == std::string::npos) {
      ADD_FAILURE() << frame;
      continue;
    }
    auto value = json::parse(frame.substr(line + 7));
    EXPECT_TRUE(value.ok()) << frame;
    out.emplace_back(frame.substr(7, line - 7), value.ok() ? *value : boost::json::value());
  }
  return out;
}

// Joined content (or another text member of the deltas) of one choice.
inline std::string joined(const std::string& body, std::string_view member = "content",
                          int choice = 0) {
  std::string out;
  for (const auto& frame : frames(body)) {
    if (!frame.is_object() || !frame.as_object().contains("choices")) continue;
    for (const auto& c : frame.at("choices").as_array()) {
      if (c.at("index") != choice) continue;
      if (const auto* text = c.at("delta").as_object().if_contains(
              boost::json::string_view(member.data(), member.size()))) {
        out += std::string_view(text->as_string());
      }
    }
  }
  return out;
}

// A surface over the fakes.
class SurfaceTest : public testing::Test {
 protected:
  FakeLoop loop;
  FakeBackend backend;
  SurfaceOptions options;
  std::unique_ptr<HttpSurface> surface_;

  HttpSurface& surface() {
    if (!surface_)
      surface_ = std::make_unique<HttpSurface>(backend, loop.clock, loop.lanes(), options);
    return *surface_;
  }
  void TearDown() override {
    loop.run();
    EXPECT_EQ(surface().num_running(), 0u) << "a request was left running";
    EXPECT_EQ(loop.num_timers(), 0u) << "a timer was left";
    for (const auto& call : backend.calls) EXPECT_TRUE(call->destroyed);
  }

  std::shared_ptr<FakeExchange> request(
      std::string method, std::string path, std::string body = {},
      std::vector<std::pair<std::string, std::string>> headers = {}) {
    net::HttpRequest r;
    r.method = std::move(method);
    r.path = std::move(path);
    r.body = std::move(body);
    r.headers.entries = std::move(headers);
    auto exchange = std::make_shared<FakeExchange>(std::move(r));
    surface().handle(exchange);
    loop.run();
    return exchange;
  }
  // A chat request with further members in its body.
  std::shared_ptr<FakeExchange> chat(const std::string& members = {}) {
    return request("POST", "/v1/chat/completions",
                   R"({"model":"org/tiny","messages":[{"role":"user","content":"hi"}])" +
                       (members.empty() ? "" : "," + members) + "}");
  }
  FakeBackend::Call& call(std::size_t index = 0) { return *backend.calls.at(index); }
  bool emit(ChatEvent event, std::size_t index = 0) {
    const bool room = backend.calls.at(index)->emit(std::move(event));
    loop.run();
    return room;
  }
};

inline boost::json::value body_json(const FakeExchange& exchange) {
  auto value = json::parse(exchange.body);
  EXPECT_TRUE(value.ok()) << exchange.body;
  return value.ok() ? *value : boost::json::value();
}

}  // namespace flotilla::serving
