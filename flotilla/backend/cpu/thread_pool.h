// A fixed set of workers for fork-join loops of some 10 microseconds and more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace flotilla::backend {

// Idle workers look for new work for some ten microseconds, then sleep: between steps they use no
// processor time.
class ThreadPool {
 public:
  // num_threads includes the caller of run(); at least 1. `pin`: each worker stays on a core of its
  // own, as far as this process has that many. The caller's thread is not ours to pin: it finds the
  // core that is left.
  explicit ThreadPool(int num_threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls body(item, thread) once for every item in [0, num_items) and returns when all are done;
  // thread is in [0, num_threads()) and distinct among bodies that run at the same time. One caller
  // at a time; bodies do not throw. Every thread has a contiguous share, which it walks in order
  // (so that a thread's prefetches are its own), and helps out in the other shares when it is done.
  // Which thread gets which item must not matter.
  template <class Body>
  void run(int num_items, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    start(
        num_items,
        [](const void* self, int item, int thread) {
          (*static_cast<Plain*>(const_cast<void*>(self)))(item, thread);
        },
        &body);
  }

 private:
  using Call = void (*)(const void*, int, int);
  struct alignas(64) Share {
    std::atomic<int> next{0};
    int end = 0;
  };
  void start(int num_items, Call call, const void* body);
  void work(int self);
  void worker(int self);

  const int num_threads_;
  // Written by start() before generation_ rises, read by workers after.
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::unique_ptr<Share[]> shares_;
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  alignas(64) std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Cores that this process may use: its affinity mask, cut to the processor quota of its control
// group.
int usable_cores();

}  // namespace flotilla::backend
