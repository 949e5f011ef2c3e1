// The load generator. Open loop: requests start on a timetable whatever the server does, and their
// latency counts from the time in that table, so a server that stalls is charged for all who would
// have come meanwhile. Closed loop: so many in flight, each followed by the next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flotilla/base/result.h"

namespace flotilla::bench {

struct RequestShape {
  std::string url = "http://127.0.0.1:8080/v1/chat/completions";
  std::string key;
  std::string model = "bench";
  std::int64_t max_tokens = 16;
  std::int64_t prompt_bytes = 200;
  double streamed = 1;  // share of the requests
};
// The whole request. `n` makes prompts differ.
std::string render_request(const RequestShape& shape, const std::string& path, bool streamed,
                           std::uint64_t n);

struct LoadOptions {
  RequestShape shape;
  double rate = 1'000;      // requests a second
  bool poisson = false;     // else evenly spaced
  std::int64_t closed = 0;  // so many in flight instead of a rate
  double warmup_s = 1;      // what is scheduled then is not counted
  double seconds = 10;      // counted
  double timeout_s = 30;
  std::int64_t connections = 20'000;  // at most; beyond them requests wait, and that counts
  std::uint64_t seed = 1;
  std::vector<int> server_pids;  // whose processor time is counted
  int cpu = -1;
  bool json = false;
};
// Prints the report. True when every request was answered whole, with 200.
Result<bool> run_load(const LoadOptions& options);

struct StreamsOptions {
  RequestShape shape;
  std::int64_t streams = 10'000;
  double opens_per_s = 1'000;
  double hold_s = 10;
  double timeout_s = 120;  // for all of them to have begun
  std::vector<int> server_pids;
  bool json = false;
};
// Opens streams, waits until each has its first event, and reports the server's memory per stream
// after `hold_s`. True when all of them were open to the end.
Result<bool> run_streams(const StreamsOptions& options);

}  // namespace flotilla::bench
