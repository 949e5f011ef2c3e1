// Interleaved timing on a machine that others use too.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace flotilla::peers {

struct Contender {
  std::string name;
  std::function<void()> step;
};

struct Quantiles {
  double p10 = 0, p50 = 0, p90 = 0;
};
Quantiles quantiles(std::vector<double> values);

struct Rounds {
  std::vector<std::vector<double>> seconds;  // [contender][round], of one step
  int disturbed =
      0;  // samples kept although the process did not have its cores, after the last try
};

// Processor time is what remains comparable with one thread on a machine that is never quiet; with
// more threads it counts time spent waiting for each other.
enum class Clock { kWall, kCpu };

// In every round each contender runs for at least min_seconds; the order turns from round to
// round. Round 0 warms up and is dropped. A sample begins when nothing else runs, or after 2
// seconds; it is taken again, up to five times, when the process got less than 0.93 of the
// processor time of `threads` cores.
Rounds measure(std::span<const Contender> contenders, int rounds, double min_seconds, int threads,
               Clock clock);

// seconds[over] / seconds[under] of the same round.
Quantiles ratio(const Rounds& rounds, std::size_t over, std::size_t under);

}  // namespace flotilla::peers
