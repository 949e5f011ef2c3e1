// Threads that run asynchronous I/O, strands and timers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace flotilla::net {

class IoRuntime {
 public:
  explicit IoRuntime(int num_threads);
  ~IoRuntime();  // stop(), then joins
  IoRuntime(const IoRuntime&) = delete;
  IoRuntime& operator=(const IoRuntime&) = delete;
  void stop();
  void post(std::function<void()> task);  // any I/O thread

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Tasks posted to one strand never run at the same time and keep their order. Thread-safe. Copies
// share the strand.
class Strand {
 public:
  explicit Strand(IoRuntime& io);
  void post(std::function<void()> task) const;
  bool running_in_this_thread() const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// A timer whose handlers run on its strand. Thread-safe. Destruction cancels.
class Timer {
 public:
  explicit Timer(const Strand& strand);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  // Replaces an earlier setting. `task` does not run when cancelled in time.
  void after(std::chrono::milliseconds delay, std::function<void()> task);
  void cancel();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Calls `handler(signal_number)` on an I/O thread for SIGINT, SIGTERM and SIGHUP until destroyed.
class SignalWatcher {
 public:
  SignalWatcher(IoRuntime& io, std::function<void(int)> handler);
  ~SignalWatcher();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace flotilla::net
