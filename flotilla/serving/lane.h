// Where the work of one request runs: tasks in order, never two at once, and one timer. An
// interface so that tests can move time by hand.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace flotilla::net {
class HttpExchange;
class IoRuntime;
}  // namespace flotilla::net

namespace flotilla::serving {

class Lane {
 public:
  virtual ~Lane() = default;
  virtual void post(std::function<void()> task) = 0;
  // Replaces an earlier setting. Called on the lane only.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> task) = 0;
  virtual void cancel_timer() = 0;
};

// Makes the lane of the request that is answered there.
using LaneFactory = std::function<std::unique_ptr<Lane>(const net::HttpExchange&)>;

// Lanes on the strands of their connections, else on new ones of `io`, which must outlive them.
LaneFactory make_net_lanes(net::IoRuntime& io);

}  // namespace flotilla::serving
