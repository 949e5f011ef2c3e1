#include "flotilla/coordinator/money/rate_limits.h"

#include <algorithm>
#include <cmath>

namespace flotilla::coordinator {

void RateLimits::set(const MoneyView& view) {
  std::lock_guard lock(mutex_);
  set(accounts_, view.account_limits);
  set(keys_, view.key_limits);
  any_ = !accounts_.empty() || !keys_.empty();
}

void RateLimits::set(Subjects& subjects, const std::unordered_map<std::uint64_t, Limits>& limits) {
  std::erase_if(subjects, [&](const auto& entry) { return !limits.contains(entry.first); });
  for (const auto& [id, wanted] : limits) {
    Subject& subject = subjects[id];
    set(subject.requests, wanted.requests);
    set(subject.input, wanted.input_tokens);
    set(subject.output, wanted.output_tokens);
  }
}

void RateLimits::set(Bucket& bucket, const std::optional<std::int64_t>& limit) {
  const std::int64_t wanted = limit.value_or(0);
  if (bucket.limit == wanted) return;
  bucket = {wanted, static_cast<double>(wanted), clock_.now()};
}

void RateLimits::fill(Bucket& bucket) {
  const auto now = clock_.now();
  const double seconds = std::chrono::duration<double>(now - bucket.filled).count();
  const auto limit = static_cast<double>(bucket.limit);
  bucket.level = std::min(limit, bucket.level + seconds * limit / 60);
  bucket.filled = now;
}

Status RateLimits::check(Bucket& bucket, double needed, std::string_view whose,
                         std::string_view what) {
  if (bucket.limit == 0) return ok_status();
  fill(bucket);
  if (bucket.level >= needed) return ok_status();
  const double wait = (needed - bucket.level) * 60 / static_cast<double>(bucket.limit);
  const auto seconds = static_cast<std::int64_t>(std::ceil(std::max(wait, 1.0)));
  return Error{ErrorCode::kResourceExhausted,
               "the " + std::string(whose) + "'s limit of " + std::to_string(bucket.limit) + " " +
                   std::string(what) + " per minute is reached; try again in " +
                   std::to_string(seconds) + " s",
               {},
               seconds};
}

Status RateLimits::check(Subject& subject, std::string_view whose) {
  FLOTILLA_TRY_STATUS(check(subject.requests, 1, whose, "requests"));
  FLOTILLA_TRY_STATUS(check(subject.input, 1, whose, "input tokens"));
  return check(subject.output, 1, whose, "output tokens");
}

Status RateLimits::admit(AccountId account, ApiKeyId key) {
  if (!any_) return ok_status();
  std::lock_guard lock(mutex_);
  const auto of_key = keys_.find(key.value);
  const auto of_account = accounts_.find(account.value);
  if (of_key != keys_.end()) FLOTILLA_TRY_STATUS(check(of_key->second, "key"));
  if (of_account != accounts_.end()) FLOTILLA_TRY_STATUS(check(of_account->second, "account"));
  // Only a request that all let in counts.
  if (of_key != keys_.end()) of_key->second.requests.level -= 1;
  if (of_account != accounts_.end()) of_account->second.requests.level -= 1;
  return ok_status();
}

void RateLimits::note_tokens(AccountId account, ApiKeyId key, std::int64_t input,
                             std::int64_t output) {
  if (!any_) return;
  std::lock_guard lock(mutex_);
  const auto take = [&](Subjects& subjects, std::uint64_t id) {
    const auto at = subjects.find(id);
    if (at == subjects.end()) return;
    for (const auto& [bucket, tokens] :
         {std::pair(&at->second.input, input), std::pair(&at->second.output, output)}) {
      if (bucket->limit == 0) continue;
      fill(*bucket);
      bucket->level -= static_cast<double>(tokens);
    }
  };
  take(keys_, key.value);
  take(accounts_, account.value);
}

}  // namespace flotilla::coordinator
