#include "flotilla/net/io_runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <future>
#include <thread>
#include <vector>

namespace flotilla::net {
namespace {

using namespace std::chrono_literals;

TEST(Strand, NeverRunsTwoTasksAtOnceAndKeepsTheirOrder) {
  IoRuntime io(4);
  const Strand strand(io);
  std::atomic<int> inside{0};
  std::vector<int> order;
  std::promise<void> done;
  bool overlapped = false, on_strand = true;
  for (int i = 0; i < 2000; ++i) {
    strand.post([&, i] {
      if (++inside != 1) overlapped = true;
      on_strand = on_strand && strand.running_in_this_thread();
      order.push_back(i);
      --inside;
      if (i == 1999) done.set_value();
    });
  }
  ASSERT_EQ(done.get_future().wait_for(5s), std::future_status::ready);
  EXPECT_FALSE(overlapped);
  EXPECT_TRUE(on_strand);
  EXPECT_FALSE(strand.running_in_this_thread());
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(Timer, FiresOnceAfterItsDelay) {
  IoRuntime io(1);
  Timer timer{Strand(io)};
  std::promise<void> fired;
  const auto start = std::chrono::steady_clock::now();
  timer.after(30ms, [&] { fired.set_value(); });  // a second call would throw
  ASSERT_EQ(fired.get_future().wait_for(3s), std::future_status::ready);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 30ms);
}

TEST(Timer, ANewSettingReplacesTheOldOne) {
  IoRuntime io(2);
  Timer timer{Strand(io)};
  std::atomic<int> old_fired{0};
  std::promise<void> fired;
  for (int i = 0; i < 50; ++i) timer.after(1ms, [&] { ++old_fired; });
  old_fired = 0;
  timer.after(20ms, [&] { fired.set_value(); });
  ASSERT_EQ(fired.get_future().wait_for(3s), std::future_status::ready);
}

TEST(Timer, DoesNotRunWhenCancelledOrDestroyedOnItsStrand) {
  IoRuntime io(2);
  const Strand strand(io);
  std::atomic<int> fired{0};
  auto destroyed = std::make_unique<Timer>(strand);
  Timer cancelled(strand);
  destroyed->after(10ms, [&] { ++fired; });
  cancelled.after(10ms, [&] { ++fired; });
  std::promise<void> done;
  strand.post([&] {
    destroyed.reset();
    cancelled.cancel();
    std::this_thread::sleep_for(20ms);  // both deadlines pass while the strand is busy
    done.set_value();
  });
  done.get_future().wait();
  std::promise<void> later;
  Timer last(strand);
  last.after(20ms, [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_EQ(fired, 0);
}

TEST(SignalWatcher, ReportsSignalsUntilDestroyed) {
  IoRuntime io(1);
  std::atomic<int> seen{0};
  {
    SignalWatcher watcher(io, [&](int number) { seen = number; });
    std::promise<void> ready;
    std::this_thread::sleep_for(20ms);
    io.post([&] { ready.set_value(); });
    ready.get_future().wait();
    std::raise(SIGHUP);
    for (int i = 0; i < 500 && seen == 0; ++i) std::this_thread::sleep_for(2ms);
    EXPECT_EQ(seen, SIGHUP);
  }
}

TEST(IoRuntime, IgnoresSigpipe) {
  IoRuntime io(1);
  struct sigaction now {};
  ASSERT_EQ(sigaction(SIGPIPE, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
}

}  // namespace
}  // namespace flotilla::net
