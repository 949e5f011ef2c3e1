// A coordinator's end of the link for tests, and engines by script. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "flotilla/api/chat_request.h"
#include "flotilla/base/clock.h"
#include "flotilla/engine/scripted_engine.h"
#include "flotilla/json/json.h"
#include "flotilla/net/http.h"
#include "flotilla/protocol/codec.h"
#include "flotilla/protocol/handshake.h"
#include "flotilla/protocol/sealed_channel.h"

namespace flotilla::provider {

inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds limit = std::chrono::milliseconds(5000)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline std::shared_ptr<engine::TextEngine> scripted(std::string_view script) {
  auto made = engine::make_scripted_engine(script);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : nullptr;
}

inline api::ChatRequest chat_request(std::string_view body) {
  auto value = json::parse(body);
  EXPECT_TRUE(value.ok());
  auto request = api::parse_chat_request(*value);
  EXPECT_TRUE(request.ok()) << (request.ok() ? "" : request.error().message);
  request->sampling_seed = 7;
  request->render_time = 1'700'000'000;
  return *request;
}

// Messages that a node sent, in order.
class Inbox {
 public:
  struct Item {
    JobId job;
    std::uint32_t attempt = 0;
    protocol::ProviderMessage message;
  };
  void add(JobId job, std::uint32_t attempt, protocol::ProviderMessage message) {
    {
      std::lock_guard lock(mutex_);
      items_.push_back({job, attempt, std::move(message)});
    }
    changed_.notify_all();
  }
  // Takes the first message of type M (for `job`, when given), dropping nothing else.
  template <class M>
  std::optional<M> take(std::optional<JobId> job = {},
                        std::chrono::milliseconds limit = std::chrono::milliseconds(5000)) {
    std::unique_lock lock(mutex_);
    std::optional<M> out;
    changed_.wait_for(lock, limit, [&] {
      for (auto it = items_.begin(); it != items_.end(); ++it) {
        if (!std::holds_alternative<M>(it->message) || (job && it->job != *job)) continue;
        out = std::get<M>(std::move(it->message));
        items_.erase(it);
        return true;
      }
      return false;
    });
    return out;
  }
  template <class M>
  std::size_t count() {
    std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (const Item& item : items_) n += std::holds_alternative<M>(item.message) ? 1 : 0;
    return n;
  }
  // What all Tokens frames of `job` join to; removes them. Checks that ids follow each other
  // without a gap.
  struct Output {
    std::string content, reasoning, arguments, call_id, call_name;
    std::vector<TokenId> ids;
    std::uint64_t first_index = 0;
    std::size_t num_logprobs = 0;
  };
  Output take_output(const JobId& job) {
    Output out;
    bool first = true;
    while (auto tokens = take<protocol::Tokens>(job, std::chrono::milliseconds(0))) {
      if (std::exchange(first, false)) out.first_index = tokens->first_index;
      EXPECT_EQ(tokens->first_index, out.first_index + out.ids.size());
      out.ids.insert(out.ids.end(), tokens->ids.begin(), tokens->ids.end());
      out.num_logprobs += tokens->logprobs.size();
      for (const protocol::TextDelta& delta : tokens->deltas) {
        if (delta.channel == protocol::TextChannel::kContent) out.content += delta.text;
        if (delta.channel == protocol::TextChannel::kReasoning) out.reasoning += delta.text;
        if (delta.channel == protocol::TextChannel::kToolCall) out.arguments += delta.text;
        out.call_id += delta.call_id;
        out.call_name += delta.call_name;
      }
    }
    return out;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  // guarded by mutex_
};

// Listens on loopback, knows one invited node, answers Register and Heartbeat by itself.
class FakeCoordinator {
 public:
  explicit FakeCoordinator(net::IoRuntime& io) : io_(io), invite_secret_(protocol::random_seed()) {
    known = protocol::KnownNode{"alpha", protocol::Identity::from_seed(invite_secret_).public_key(),
                                std::nullopt, false};
    listen(0);
  }

  void listen(std::uint16_t port) {
    net::HttpServerOptions options;
    options.port = port;
    server_ = std::make_unique<net::HttpServer>(
        io_, options,
        [](std::shared_ptr<net::HttpExchange> exchange) { exchange->send({.status = 404}); },
        [](unsigned status, std::string_view) { return net::HttpResponse{.status = status}; });
    server_->set_ws_acceptor(
        [this](const net::HttpRequest&, std::shared_ptr<net::WsSession> session) {
          return accept(std::move(session));
        });
    const Status started = server_->start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    port_ = server_->port();
  }
  void close_listener() { server_.reset(); }

  std::uint16_t port() const { return port_; }
  const protocol::Identity& identity() const { return identity_; }
  protocol::NodeCredentials credentials(const protocol::Identity& node) const {
    return {"alpha", node, identity_.public_key(), invite_secret_, "flotilla test"};
  }

  void send(const protocol::CoordinatorMessage& message, JobId job = {},
            std::uint32_t attempt = 0) {
    std::lock_guard lock(mutex_);
    if (!session_ || !channel_) return;
    auto frame = channel_->seal_message(message, job, attempt);
    ASSERT_TRUE(frame.ok());
    session_->send(std::move(*frame), true);
  }
  // The bytes that `message` would be, sealed, without sending them.
  std::string seal(const protocol::CoordinatorMessage& message) {
    std::lock_guard lock(mutex_);
    return *channel_->seal_message(message);
  }
  void send_raw(std::string bytes) {
    std::lock_guard lock(mutex_);
    if (session_) session_->send(std::move(bytes), true);
  }
  void cut() {
    std::lock_guard lock(mutex_);
    if (session_) session_->abort();
  }
  void forget_session() {
    std::lock_guard lock(mutex_);
    session_.reset();
  }

  Inbox inbox;
  std::optional<protocol::KnownNode> known;  // set before the node dials
  protocol::Registered registered = {
      .provider = "p", .heartbeat_interval_ms = 50, .dead_after_ms = 400};
  std::atomic<bool> answers_heartbeats{true};
  std::atomic<bool> swallow_register{false};
  std::atomic<int> num_connections{0}, num_registered{0}, num_closed{0};

 private:
  // All callbacks of one session run on its strand; the mutex orders them with the test's thread.
  net::WsHandlers accept(std::shared_ptr<net::WsSession> session) {
    ++num_connections;
    auto handshake = std::make_shared<protocol::CoordinatorHandshake>(identity_);
    const std::weak_ptr<net::WsSession> weak = session;
    {
      std::lock_guard lock(mutex_);
      session_ = std::move(session);
      channel_.reset();
    }
    net::WsHandlers handlers;
    handlers.on_message = [this, handshake, weak, step = 0](std::string message,
                                                            bool binary) mutable {
      auto mine = weak.lock();
      if (!mine) return;
      const auto refuse = [&](const Error& error) {
        step = 3;  // what the node sent before it knew is dropped
        mine->send(protocol::CoordinatorHandshake::reject(error), true);
        mine->close(1008, "refused");
      };
      if (step == 0) {
        step = 1;
        const auto hello = handshake->on_hello(message, binary);
        if (!hello.ok()) return refuse(hello.error());
        auto offer = handshake->offer(known && known->node == hello->node ? known : std::nullopt);
        if (!offer.ok()) return refuse(offer.error());
        mine->send(std::move(*offer), true);
        return;
      }
      if (step == 1) {
        step = 2;
        const auto binds = handshake->on_proof(message, binary);
        if (!binds.ok()) return refuse(binds.error());
        if (*binds) known->bound_key = handshake->hello().public_key;
        std::lock_guard lock(mutex_);
        channel_.emplace(handshake->keys(), clock_);
        return;
      }
      if (step == 2) on_frame(message);
    };
    handlers.on_closed = [this](std::string) { ++num_closed; };
    return handlers;
  }

  void on_frame(const std::string& bytes) {
    std::unique_lock lock(mutex_);
    auto frame = channel_->open(bytes);
    ASSERT_TRUE(frame.ok()) << frame.error().message;
    lock.unlock();
    auto message = protocol::decode_provider(frame->header.kind, frame->body);
    ASSERT_TRUE(message.ok()) << message.error().message;
    if (std::holds_alternative<protocol::Register>(*message) && !swallow_register) {
      send(registered);
      ++num_registered;
    }
    if (const auto* beat = std::get_if<protocol::Heartbeat>(&*message);
        beat && answers_heartbeats) {
      send(protocol::HeartbeatAck{.sequence = beat->sequence});
    }
    inbox.add(frame->header.job, frame->header.attempt, std::move(*message));
  }

  net::IoRuntime& io_;
  SystemClock clock_;
  const protocol::Identity identity_ = protocol::Identity::generate();
  const protocol::Seed invite_secret_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::shared_ptr<net::WsSession> session_;         // guarded by mutex_
  std::optional<protocol::SealedChannel> channel_;  // guarded by mutex_
  std::unique_ptr<net::HttpServer> server_;         // last: its sessions use everything above
};

}  // namespace flotilla::provider
