// When to dial again. Spread out, so that a coordinator that restarts is not met by all nodes at
// once.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace flotilla::provider {

struct BackoffOptions {
  std::chrono::milliseconds base{1'000};
  std::chrono::milliseconds max{30'000};
  std::chrono::milliseconds stable_after{
      30'000};                            // a connection that lasted so long resets the window
  std::chrono::milliseconds herd{4'000};  // extra spread after such a connection
};

// One thread.
class Backoff {
 public:
  Backoff(BackoffOptions options, std::uint64_t seed) : options_(options), random_(seed) {}

  // The wait before the next attempt. `lasted`: how long the last connection was registered; zero
  // for a failed attempt. Half of the window is fixed, half random; the window doubles with every
  // failure.
  std::chrono::milliseconds next(std::chrono::milliseconds lasted);

 private:
  BackoffOptions options_;
  std::mt19937_64 random_;
  int num_failures_ = 0;
};

}  // namespace flotilla::provider
