// Time is passed in, so that tests can move it.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace flotilla {

// Thread-safe.
class Clock {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual Instant now() const = 0;  // monotonic
  virtual std::int64_t unix_seconds() const = 0;
};

// The machine's own clocks. One instance serves the whole process: it has no state.
class SystemClock final : public Clock {
 public:
  Instant now() const override { return std::chrono::steady_clock::now(); }
  std::int64_t unix_seconds() const override {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

// Stands still until advanced.
class FakeClock final : public Clock {
 public:
  Instant now() const override {
    std::lock_guard lock(mutex_);
    return now_;
  }
  std::int64_t unix_seconds() const override {
    std::lock_guard lock(mutex_);
    return 1'700'000'000 +
           std::chrono::duration_cast<std::chrono::seconds>(now_ - Instant{}).count();
  }
  void advance(std::chrono::nanoseconds by) {
    std::lock_guard lock(mutex_);
    now_ += std::chrono::duration_cast<Instant::duration>(by);
  }

 private:
  mutable std::mutex mutex_;
  Instant now_{};  // guarded by mutex_
};

}  // namespace flotilla
