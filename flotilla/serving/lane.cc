#include "flotilla/serving/lane.h"

#include "flotilla/net/io_runtime.h"

namespace flotilla::serving {
namespace {

class NetLane final : public Lane {
 public:
  explicit NetLane(net::IoRuntime& io) : strand_(io), timer_(strand_) {}
  void post(std::function<void()> task) override { strand_.post(std::move(task)); }
  void after(std::chrono::milliseconds delay, std::function<void()> task) override {
    timer_.after(delay, std::move(task));
  }
  void cancel_timer() override { timer_.cancel(); }

 private:
  net::Strand strand_;
  net::Timer timer_;
};

}  // namespace

LaneFactory make_net_lanes(net::IoRuntime& io) {
  return [&io] { return std::make_unique<NetLane>(io); };
}

}  // namespace flotilla::serving
