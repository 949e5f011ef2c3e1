#include "flotilla/coordinator/registry/first_content.h"

#include <algorithm>
#include <cmath>

namespace flotilla::coordinator {
namespace {

constexpr double kDefaultRoundTrip = 0.01;
constexpr double kDefaultPerToken = 1.0 / 500;
constexpr double kDefaultLoad = 30;
constexpr double kDefaultJob = 5;
// A disk that nobody has measured, and what a load takes besides.
constexpr double kLoadBytesPerSecond = 1e9, kLoadOverhead = 2;
constexpr std::chrono::seconds kReportIsFresh{60};
constexpr double kSmallestStep = 0.05;

}  // namespace

std::string_view to_string(Source source) {
  switch (source) {
    case Source::kNothing:
      return "nothing";
    case Source::kMeasured:
      return "measured";
    case Source::kReported:
      return "reported";
    case Source::kFleet:
      return "fleet";
    case Source::kDefault:
      return "default";
  }
  return "?";
}

TimePart expect_prefill(const ModelSlot& slot, const Evidence& fleet, std::int64_t tokens,
                        Clock::Instant now) {
  if (tokens <= 0) return {};
  const auto n = static_cast<double>(tokens);
  const auto measured = slot.history.prefill.seconds(tokens, now);
  if (measured && now - measured->at < kFreshFor)
    return {measured->seconds, Source::kMeasured, measured->at};
  // Its own figure has no length, and goes with the heartbeats.
  const bool reported = slot.load.prefill_tokens_per_s > 0;
  if (reported && (now - slot.load_at < kReportIsFresh || !measured))
    return {n / slot.load.prefill_tokens_per_s, Source::kReported, slot.load_at};
  if (measured) return {measured->seconds, Source::kMeasured, measured->at};
  if (fleet.known()) return {n * fleet.value, Source::kFleet, fleet.at};
  return {n * kDefaultPerToken, Source::kDefault, {}};
}

TimePart expect_load(const ModelSlot& slot) {
  const Evidence& known = slot.history.load_seconds;
  if (known.known()) return {known.value, Source::kMeasured, known.at};
  if (slot.offer.resident_bytes > 0) {
    return {kLoadOverhead + static_cast<double>(slot.offer.resident_bytes) / kLoadBytesPerSecond,
            Source::kDefault,
            {}};
  }
  return {kDefaultLoad, Source::kDefault, {}};
}

FirstContent expect_first_content(const ProviderRecord& provider, const ModelSlot& slot,
                                  const Evidence& fleet, std::int64_t tokens, Clock::Instant now) {
  FirstContent out;
  out.network = provider.round_trip.known()
                    ? TimePart{provider.round_trip.value, Source::kMeasured, provider.round_trip.at}
                    : TimePart{kDefaultRoundTrip, Source::kDefault, {}};
  out.prefill = expect_prefill(slot, fleet, tokens, now);
  if (!slot.offer.loaded) {
    out.load = expect_load(slot);
    return out;
  }
  out.wait = expect_prefill(slot, fleet, slot.prefill_tokens, now);
  if (slot.load.num_waiting > 0 && now - slot.load_at < kReportIsFresh) {
    const Evidence& job = slot.history.job_seconds;
    const double each = (job.known() ? job.value : kDefaultJob) /
                        static_cast<double>(std::max(1u, slot.load.num_running));
    out.wait.seconds += each * static_cast<double>(slot.load.num_waiting);
    if (out.wait.source == Source::kNothing) {
      out.wait.source = job.known() ? Source::kMeasured : Source::kReported;
      out.wait.at = slot.load_at;
    }
  }
  return out;
}

std::uint32_t time_step(double seconds) {
  // Four steps for a factor of two.
  return static_cast<std::uint32_t>(4 * std::log2(1 + std::max(0.0, seconds) / kSmallestStep));
}

}  // namespace flotilla::coordinator
