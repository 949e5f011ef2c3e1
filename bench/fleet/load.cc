#include "bench/fleet/load.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

#include "bench/fleet/client.h"
#include "bench/fleet/process_stat.h"

namespace flotilla::bench {
namespace {

constexpr double kNano = 1e9;

double ms(std::int64_t from, std::int64_t to) { return static_cast<double>(to - from) / 1e6; }

// Why an answer is not what was asked for; empty when it is.
std::string fault_of(const Call& call, const ResponseReader& answer) {
  if (answer.status() != 200) return "status " + std::to_string(answer.status());
  if (!call.streamed) return answer.has_body() ? "" : "empty answer";
  if (!answer.streamed()) return "not a stream";
  if (answer.saw_error()) return "error event";
  return answer.saw_done() ? "" : "stream without its end";
}

struct Tally {
  std::vector<double> whole, first;  // ms from the schedule
  std::map<std::string, std::uint64_t> errors;
  std::uint64_t answered = 0, events = 0, bytes = 0;
};

void print_times(const char* what, const Quantiles& q) {
  std::printf("%-14s p50 %8.3f  p90 %8.3f  p99 %8.3f  p99.9 %8.3f  max %8.3f ms\n", what, q.p50,
              q.p90, q.p99, q.p999, q.max);
}

void print_json(const char* name, const Quantiles& q) {
  std::printf(",\"%s\":{\"p50\":%.4f,\"p90\":%.4f,\"p99\":%.4f,\"p999\":%.4f,\"max\":%.4f}", name,
              q.p50, q.p90, q.p99, q.p999, q.max);
}

}  // namespace

std::string render_request(const RequestShape& shape, const std::string& path, bool streamed,
                           std::uint64_t n) {
  std::string prompt = "Request " + std::to_string(n) + ".";
  while (static_cast<std::int64_t>(prompt.size()) < shape.prompt_bytes) prompt += " word";
  const std::string body = "{\"model\":\"" + shape.model +
                           "\",\"messages\":[{\"role\":\"user\",\"content\":\"" + prompt +
                           "\"}],\"max_tokens\":" + std::to_string(shape.max_tokens) +
                           ",\"stream\":" + (streamed ? "true" : "false") + "}";
  std::string out = "POST " + path + " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json";
  if (!shape.key.empty()) out += "\r\nAuthorization: Bearer " + shape.key;
  return out + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

Result<bool> run_load(const LoadOptions& options) {
  FLOTILLA_TRY(const Target target, parse_target(options.shape.url));
  FLOTILLA_TRY_STATUS(pin_to(options.cpu));
  raise_limits();
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> gap(options.rate);
  std::uniform_real_distribution<double> unit;
  Tally tally;
  std::uint64_t num_started = 0, num_counted = 0;
  const auto fail = [&](const Call& call, const std::string& kind) {
    if (call.counted) ++tally.errors[kind];
  };
  Client client(target, static_cast<std::size_t>(options.connections),
                {.on_first = {},
                 .on_whole =
                     [&](Call& call, const ResponseReader& answer) {
                       if (const std::string fault = fault_of(call, answer); !fault.empty())
                         return fail(call, fault);
                       if (!call.counted) return;
                       ++tally.answered;
                       tally.events += answer.events();
                       tally.bytes += answer.body_bytes();
                       tally.whole.push_back(ms(call.scheduled, now_ns()));
                       if (call.streamed) tally.first.push_back(ms(call.scheduled, call.first));
                     },
                 .on_error = fail});

  const std::int64_t begin = now_ns();
  const std::int64_t count_from = begin + static_cast<std::int64_t>(options.warmup_s * kNano);
  const std::int64_t end = count_from + static_cast<std::int64_t>(options.seconds * kNano);
  const auto timeout = static_cast<std::int64_t>(options.timeout_s * kNano);
  ProcessStat before;
  bool counting = false;
  const auto start = [&](std::int64_t scheduled) {
    const bool streamed = unit(random) < options.shape.streamed;
    const bool counted = scheduled >= count_from;
    num_counted += counted ? 1 : 0;
    client.start({.scheduled = scheduled,
                  .first = 0,
                  .counted = counted,
                  .streamed = streamed,
                  .bytes = render_request(options.shape, target.path, streamed, num_started++)});
  };
  double due = static_cast<double>(begin);
  std::int64_t expired_at = begin;
  for (std::int64_t now = begin;; now = now_ns()) {
    if (!counting && now >= count_from) {
      counting = true;
      FLOTILLA_TRY(before, read_processes(options.server_pids));
    }
    std::int64_t wait = 100'000'000;
    if (now < end && options.closed > 0) {
      while (client.in_flight() < static_cast<std::size_t>(options.closed)) start(now_ns());
    } else if (now < end) {
      while (static_cast<std::int64_t>(due) <= now && static_cast<std::int64_t>(due) < end) {
        start(static_cast<std::int64_t>(due));
        due += options.poisson ? gap(random) * kNano : kNano / options.rate;
      }
      wait = static_cast<std::int64_t>(due) - now_ns();
    } else if (client.in_flight() == 0 || options.closed > 0) {
      break;
    }
    client.poll(std::min<std::int64_t>(wait, counting ? 100'000'000 : count_from - now));
    if (now - expired_at > 1'000'000'000) {
      expired_at = now;
      client.expire(now - timeout);
    }
  }
  const double elapsed = static_cast<double>(now_ns() - count_from) / kNano;
  FLOTILLA_TRY(const ProcessStat after, read_processes(options.server_pids));
  std::uint64_t num_failed = 0;
  for (const auto& [kind, n] : tally.errors) num_failed += n;
  const double cpu = after.cpu_seconds - before.cpu_seconds;
  const double answered = static_cast<double>(std::max<std::uint64_t>(1, tally.answered));
  const Quantiles whole = quantiles(tally.whole), first = quantiles(tally.first);
  const double events_per_s = static_cast<double>(tally.events) / elapsed;
  if (options.json) {
    std::printf("{\"requests\":%llu,\"answered\":%llu,\"failed\":%llu,\"seconds\":%.3f",
                static_cast<unsigned long long>(num_counted),
                static_cast<unsigned long long>(tally.answered),
                static_cast<unsigned long long>(num_failed), elapsed);
    print_json("whole_ms", whole);
    print_json("first_ms", first);
    std::printf(",\"events\":%llu,\"events_per_s\":%.0f,\"body_bytes\":%llu,\"connections\":%zu",
                static_cast<unsigned long long>(tally.events), events_per_s,
                static_cast<unsigned long long>(tally.bytes), client.connections_made());
    std::printf(",\"cpu_s\":%.3f,\"cpu_us_per_request\":%.2f,\"events_per_cpu_s\":%.0f}\n", cpu,
                cpu * 1e6 / answered, cpu > 0 ? static_cast<double>(tally.events) / cpu : 0);
  } else {
    std::printf("%llu requests in %.1f s over %zu connections: %llu answered, %llu failed\n",
                static_cast<unsigned long long>(num_counted), elapsed, client.connections_made(),
                static_cast<unsigned long long>(tally.answered),
                static_cast<unsigned long long>(num_failed));
    for (const auto& [kind, n] : tally.errors)
      std::printf("  %llu: %s\n", static_cast<unsigned long long>(n), kind.c_str());
    print_times("whole answer", whole);
    if (!tally.first.empty()) print_times("first event", first);
    std::printf("%.0f events/s, %.1f MB/s\n", events_per_s,
                static_cast<double>(tally.bytes) / elapsed / 1e6);
    if (!options.server_pids.empty())
      std::printf("server: %.2f processor seconds, %.1f us a request, %.0f events a second of it\n",
                  cpu, cpu * 1e6 / answered, cpu > 0 ? static_cast<double>(tally.events) / cpu : 0);
  }
  return num_failed == 0 && tally.answered > 0;
}

}  // namespace flotilla::bench
