#include "flotilla/serving/lane.h"

#include "flotilla/net/http.h"
#include "flotilla/net/io_runtime.h"

namespace flotilla::serving {
namespace {

class NetLane final : public Lane {
 public:
  explicit NetLane(net::Strand strand) : strand_(std::move(strand)), timer_(strand_) {}
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
  return [&io](const net::HttpExchange& exchange) {
    const net::Strand* strand = exchange.strand();
    return std::make_unique<NetLane>(strand != nullptr ? *strand : net::Strand(io));
  };
}

}  // namespace flotilla::serving
