// What signals ask for, for a main thread that waits. SIGHUP asks to read files again; from a
// terminal that was closed, to stop.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>

#include "flotilla/net/io_runtime.h"

namespace flotilla::apps {

class Signals {
 public:
  explicit Signals(net::IoRuntime& io) : watcher_(io, [this](int number) { on_signal(number); }) {}

  enum class Asked { kReload, kStop };
  Asked wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reload_ || num_stops_ > 0; });
    if (num_stops_ > 0) return Asked::kStop;
    reload_ = false;
    return Asked::kReload;
  }
  // After the first stop: until `done`, a second stop, or the deadline. True when done.
  bool wait_until(const std::function<bool()>& done, std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    std::unique_lock lock(mutex_);
    while (!done()) {
      if (num_stops_ > 1 || std::chrono::steady_clock::now() >= end) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    return true;
  }
  // As if SIGTERM had come.
  void stop() { on_signal(SIGTERM); }

 private:
  // A controlling terminal, whatever stdin and stdout are.
  static bool has_terminal() {
    const int file = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0) ::close(file);
    return file >= 0;
  }
  void on_signal(int number) {
    std::lock_guard lock(mutex_);
    if (number == SIGHUP && !(had_terminal_ && !has_terminal())) {
      reload_ = true;
    } else {
      ++num_stops_;
    }
    changed_.notify_all();
  }

  const bool had_terminal_ = has_terminal();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reload_ = false;  // guarded by mutex_
  int num_stops_ = 0;    // guarded by mutex_
  net::SignalWatcher watcher_;
};

}  // namespace flotilla::apps
