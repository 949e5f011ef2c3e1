// What another process uses, as the kernel counts it.
#pragma once

#include <cstdint>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::bench {

struct ProcessStat {
  std::uint64_t resident_bytes = 0;
  double cpu_seconds = 0;  // user and system, all threads
};
// Of all these processes together.
Result<ProcessStat> read_processes(const std::vector<int>& pids);

// Sorted in place; 0 for nothing.
struct Quantiles {
  double p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
};
Quantiles quantiles(std::vector<double>& values);

}  // namespace flotilla::bench
