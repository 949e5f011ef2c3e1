// Many open streams at once, and what they cost the server.
#include <cstdio>
#include <map>

#include "bench/fleet/client.h"
#include "bench/fleet/load.h"
#include "bench/fleet/process_stat.h"

namespace flotilla::bench {
namespace {
constexpr double kNano = 1e9;
}

Result<bool> run_streams(const StreamsOptions& options) {
  FLOTILLA_TRY(const Target target, parse_target(options.shape.url));
  const std::size_t files = raise_limits();
  if (files < static_cast<std::size_t>(options.streams) + 64) {
    return Error{ErrorCode::kResourceExhausted, "this process may open " + std::to_string(files) +
                                                    " files, too few for " +
                                                    std::to_string(options.streams) + " streams"};
  }
  std::size_t num_begun = 0, num_ended = 0;
  std::map<std::string, std::uint64_t> errors;
  Client client(
      target, static_cast<std::size_t>(options.streams),
      {.on_first = [&](Call&) { ++num_begun; },
       .on_whole =
           [&](Call&, const ResponseReader& answer) {
             ++num_ended;
             ++errors[answer.status() == 200 ? "ended early"
                                             : "status " + std::to_string(answer.status())];
           },
       .on_error =
           [&](Call&, const std::string& kind) {
             ++num_ended;
             ++errors[kind];
           }});
  FLOTILLA_TRY(const ProcessStat before, read_processes(options.server_pids));
  const std::int64_t begin = now_ns();
  const auto streams = static_cast<std::size_t>(options.streams);
  std::size_t num_started = 0;
  std::int64_t held_since = 0;
  while (true) {
    const std::int64_t now = now_ns();
    const double elapsed = static_cast<double>(now - begin) / kNano;
    while (num_started < streams &&
           static_cast<double>(num_started) < elapsed * options.opens_per_s) {
      client.start({.scheduled = now,
                    .first = 0,
                    .counted = true,
                    .streamed = true,
                    .bytes = render_request(options.shape, target.path, true, num_started)});
      ++num_started;
    }
    if (num_begun == streams && held_since == 0) held_since = now;
    if (held_since > 0 && static_cast<double>(now - held_since) / kNano >= options.hold_s) break;
    if (num_ended > 0 || (held_since == 0 && elapsed > options.timeout_s)) break;
    client.poll(num_started < streams ? 500'000 : 50'000'000);
  }
  FLOTILLA_TRY(const ProcessStat after, read_processes(options.server_pids));
  const std::size_t num_open = client.in_flight();
  const bool all = num_open == streams && num_begun == streams;
  const double per_stream =
      (static_cast<double>(after.resident_bytes) - static_cast<double>(before.resident_bytes)) /
      static_cast<double>(std::max<std::size_t>(1, num_open));
  if (options.json) {
    std::printf(
        "{\"streams\":%zu,\"begun\":%zu,\"open\":%zu,\"rss_before\":%llu,\"rss_after\":%llu,"
        "\"bytes_per_stream\":%.0f}\n",
        streams, num_begun, num_open, static_cast<unsigned long long>(before.resident_bytes),
        static_cast<unsigned long long>(after.resident_bytes), per_stream);
  } else {
    std::printf("%zu of %zu streams have begun, %zu are open\n", num_begun, streams, num_open);
    for (const auto& [kind, n] : errors)
      std::printf("  %llu: %s\n", static_cast<unsigned long long>(n), kind.c_str());
    if (!options.server_pids.empty()) {
      std::printf("server: %.1f MB before, %.1f MB now: %.0f bytes a stream\n",
                  static_cast<double>(before.resident_bytes) / 1e6,
                  static_cast<double>(after.resident_bytes) / 1e6, per_stream);
    }
  }
  return all;
}

}  // namespace flotilla::bench
