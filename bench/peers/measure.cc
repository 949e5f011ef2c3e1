#include "bench/peers/measure.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace flotilla::peers {
namespace {

double seconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

constexpr int kAttempts = 5;

// Until nothing else wants a core, for 2 seconds at most.
void wait_for_quiet() {
  for (int i = 0; i < 200; ++i) {
    std::FILE* file = std::fopen("/proc/loadavg", "r");
    if (file == nullptr) return;
    int running = 0;
    const int found = std::fscanf(file, "%*f %*f %*f %d/", &running);
    std::fclose(file);
    if (found != 1 || running <= 1) return;
    usleep(10'000);
  }
}

}  // namespace

Quantiles quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return values[static_cast<std::size_t>(
        std::lround(q * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.1), at(0.5), at(0.9)};
}

Rounds measure(std::span<const Contender> contenders, int rounds, double min_seconds, int threads,
               Clock clock) {
  Rounds result;
  result.seconds.resize(contenders.size());
  for (int round = 0; round <= rounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      // Forwards and backwards in turn, so that no contender always follows the same one.
      const std::size_t which = round % 2 == 0 ? i : contenders.size() - 1 - i;
      for (int attempt = 0;; ++attempt) {
        if (clock == Clock::kWall) wait_for_quiet();
        const double begin = seconds_of(CLOCK_MONOTONIC);
        const double cpu_begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        int steps = 0;
        double elapsed = 0;
        do {
          contenders[which].step();
          ++steps;
          elapsed = seconds_of(CLOCK_MONOTONIC) - begin;
        } while (elapsed < min_seconds);
        const double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin;
        const bool undisturbed = clock == Clock::kCpu || cpu >= 0.93 * threads * elapsed;
        if (!undisturbed && attempt < kAttempts - 1) continue;
        if (round > 0) {
          result.seconds[which].push_back((clock == Clock::kWall ? elapsed : cpu / threads) /
                                          steps);
          result.disturbed += undisturbed ? 0 : 1;
        }
        break;
      }
    }
  }
  return result;
}

Quantiles ratio(const Rounds& rounds, std::size_t over, std::size_t under) {
  std::vector<double> values;
  for (std::size_t i = 0; i < rounds.seconds[over].size(); ++i) {
    values.push_back(rounds.seconds[over][i] / rounds.seconds[under][i]);
  }
  return quantiles(std::move(values));
}

}  // namespace flotilla::peers
