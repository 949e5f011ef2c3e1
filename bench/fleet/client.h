// Keep-alive connections to one server, and what comes back on them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/fleet/response_reader.h"
#include "bench/fleet/sockets.h"

namespace flotilla::bench {

// One request and its answer. Times as of now_ns().
struct Call {
  std::int64_t scheduled = 0;
  std::int64_t first = 0;  // first byte of the body; 0: none yet
  bool counted = true;
  bool streamed = false;
  std::string bytes;  // of the request
};

// One thread.
class Client {
 public:
  struct Events {
    std::function<void(Call&)> on_first;                         // may be empty
    std::function<void(Call&, const ResponseReader&)> on_whole;  // the answer is complete
    std::function<void(Call&, const std::string& kind)> on_error;
  };
  Client(Target target, std::size_t max_connections, Events events);
  ~Client();

  // Sends now if a connection is free or can be made, else when one becomes free.
  void start(Call call);
  // Handles what happened; waits for it at most so long.
  void poll(std::int64_t nanoseconds);
  // Gives up what was scheduled before that.
  void expire(std::int64_t scheduled_before);

  std::size_t in_flight() const { return in_flight_ + waiting_.size() - waiting_from_; }
  std::size_t connections_made() const { return connections_made_; }

 private:
  struct Connection {
    int fd = -1;
    bool connecting = false;
    bool busy = false;
    std::size_t sent = 0;
    Call call;
    ResponseReader reader;
  };
  bool launch(Call& call);
  void send_more(std::size_t index);
  void receive(std::size_t index);
  void finish(std::size_t index, const std::string& error);
  void drop(Connection& connection);
  void start_waiting();

  const Target target_;
  const std::size_t max_connections_;
  const Events events_;
  Poller poller_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::size_t> idle_;    // connected; the last one used comes first
  std::vector<std::size_t> closed_;  // places without a socket
  std::vector<Call> waiting_;
  std::size_t waiting_from_ = 0;
  std::size_t in_flight_ = 0;
  std::size_t connections_made_ = 0;
  std::string buffer_;
};

}  // namespace flotilla::bench
