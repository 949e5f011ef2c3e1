// The WebSocket session behind WsSession, for both roles. Internal to net/.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "flotilla/net/byte_stream.h"
#include "flotilla/net/http.h"
#include "flotilla/net/url.h"
#include "flotilla/net/ws_session.h"

namespace flotilla::net {

// Starts detached: send() queues until a start function was called and the handshake is done.
class WsSessionImpl final : public WsSession, public std::enable_shared_from_this<WsSessionImpl> {
 public:
  WsSessionImpl(const Strand& strand, std::size_t max_message_bytes, std::string peer);
  ~WsSessionImpl() override;

  // All three on the strand. `on_gone` runs after on_closed.
  void start_server(std::unique_ptr<ByteStream> stream, const HttpRequest& upgrade,
                    WsHandlers handlers, std::function<void()> on_gone);
  // `on_stop` runs when the session ends before start_client(), so that the connection attempt is
  // given up.
  void expect_client(WsHandlers handlers, std::chrono::milliseconds connect_timeout,
                     std::function<void()> on_stop);
  void start_client(std::unique_ptr<ByteStream> stream, const WsUrl& url);
  void fail(std::string reason);

  bool send(std::string message, bool binary) override;
  void close(std::uint16_t code, std::string_view reason) override;
  void abort() override;
  std::size_t queued_bytes() const override { return queued_bytes_; }
  std::uint64_t received_bytes() const override { return received_bytes_; }
  void set_max_message_bytes(std::size_t bytes) override;
  std::string peer() const override;
  void post(std::function<void()> task) override { strand_.post(std::move(task)); }

 private:
  struct Connection;  // the Beast stream
  struct Message {
    std::string bytes;
    bool binary;
  };

  void opened();
  void read_next();
  void deliver();
  void take_messages();
  void write_next();
  void check_write_progress();
  void start_close();
  void finish(std::string reason);

  const Strand strand_;
  std::size_t max_message_bytes_;
  Timer timer_;        // connecting, then closing
  Timer write_timer_;  // progress of writes

  std::atomic<bool> closed_{false};
  std::atomic<std::size_t> queued_bytes_{0};
  std::atomic<std::uint64_t> received_bytes_{0};
  mutable std::mutex mutex_;
  std::string peer_;  // guarded by mutex_
  std::deque<Message>
      incoming_;  // guarded by mutex_; sent by other threads, not yet seen by the strand
  bool take_posted_ = false;  // guarded by mutex_

  // Strand only.
  WsHandlers handlers_;
  std::function<void()> on_gone_;
  std::function<void()> on_stop_;
  std::unique_ptr<Connection> connection_;
  std::deque<Message> output_;
  bool open_ = false;
  bool writing_ = false;
  bool finished_ = false;
  bool close_wanted_ = false;
  bool close_sent_ = false;
  bool write_timer_set_ = false;
  std::uint64_t bytes_seen_ = 0;  // written when the progress timer last looked
  std::uint16_t close_code_ = 1000;
  std::string close_reason_;
};

}  // namespace flotilla::net
