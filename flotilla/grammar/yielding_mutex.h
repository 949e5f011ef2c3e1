// A mutex for many short uses and a long one, which lets the short ones pass.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace flotilla::grammar {

class YieldingMutex {
 public:
  void lock() {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  void unlock() { mutex_.unlock(); }
  // By whoever holds it: lets everybody pass that waits. What it guards may be another afterwards.
  void let_pass() {
    if (waiting_.load(std::memory_order_relaxed) == 0) return;
    mutex_.unlock();
    while (waiting_.load(std::memory_order_relaxed) != 0) std::this_thread::yield();
    mutex_.lock();
  }

 private:
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
};

}  // namespace flotilla::grammar
