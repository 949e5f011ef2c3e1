// What clients hear when no node can be had: why, and when to try again.
#include <algorithm>
#include <cmath>

#include "flotilla/coordinator/gateway/dispatcher.h"

namespace flotilla::coordinator {
namespace {

constexpr std::chrono::milliseconds kHintIsGood{200};
constexpr std::int64_t kMinRetry = 1, kMaxRetry = 60;

std::string with_numbers(const gates::Verdict& verdict) {
  return " (" + std::to_string(verdict.needed) + " against " + std::to_string(verdict.available) +
         ")";
}

}  // namespace

bool Dispatcher::fail_if_hopeless(Job& job, const RouteWish& wish) {
  const std::string& model = table_.request(job.request)->model;
  const auto verdict = router_.hopeless(model, wish);
  if (!verdict) return false;
  const std::string nodes = std::to_string(router_.num_candidates(model, {}));
  if (verdict->reason == gates::Reason::kTooLong) {
    fail_job(job, {ErrorCode::kContextLength,
                   "the prompt is longer than any of the " + nodes + " nodes with model '" + model +
                       "' can take" + with_numbers(*verdict),
                   "messages"});
  } else {
    fail_job(job, {ErrorCode::kNotFound,
                   "model '" + model + "' fits into none of the " + nodes +
                       " nodes that have it; bytes needed and there" + with_numbers(*verdict),
                   "model"});
  }
  return true;
}

std::int64_t Dispatcher::retry_after(const std::string& model) {
  RetryHint& hint = retry_hints_[model];
  const Clock::Instant now = clock_.now();
  if (hint.seconds > 0 && now - hint.at < kHintIsGood) return hint.seconds;
  double seconds = std::chrono::duration<double>(router_.outlook(model, {}).get().retry_in).count();
  // Those who wait already come first.
  const auto queue = queues_.find(model);
  if (const auto* index = registry_.model(model); index != nullptr && queue != queues_.end()) {
    double per_second = 0;
    for (const ProviderRecord* provider : index->members) {
      const ModelSlot& slot = provider->slots.at(model);
      const Evidence& job = slot.history.job_seconds;
      if (slot.offer.loaded && job.known() && job.value > 0)
        per_second += static_cast<double>(slot.offer.max_concurrent) / job.value;
    }
    if (per_second > 0) seconds += static_cast<double>(queue->second.size()) / per_second;
  }
  hint = {now, std::clamp(static_cast<std::int64_t>(std::ceil(seconds)), kMinRetry, kMaxRetry)};
  return hint.seconds;
}

std::string Dispatcher::busy_reasons(const std::string& model) const {
  const gates::OutlookOf outlook = router_.outlook(model, {});
  std::string out;
  for (std::size_t i = 0; i < gates::kNumReasons; ++i) {
    const auto reason = static_cast<gates::Reason>(i);
    const std::uint32_t count = count_of(outlook.counts(), reason);
    if (count == 0) continue;
    // A slot may have become free for others than those who wait.
    out += (out.empty() ? "" : ", ") + std::to_string(count) + " " +
           std::string(reason == gates::Reason::kNone ? "free" : to_string(reason));
  }
  return out;
}

}  // namespace flotilla::coordinator
