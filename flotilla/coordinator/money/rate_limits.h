// Limits per minute of keys and accounts: requests, tokens in, tokens out.
//
// Each is a bucket that holds one minute's worth and fills at the limit's rate. A request takes
// from the first at once. Tokens are known only at the end of a job, so they may leave a bucket in
// debt; requests are let in again when it is paid off.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "flotilla/base/clock.h"
#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/coordinator/money/money_view.h"

namespace flotilla::coordinator {

// Thread-safe.
class RateLimits {
 public:
  // `clock` must outlive it.
  explicit RateLimits(const Clock& clock) : clock_(clock) {}

  // Buckets of subjects that keep their limits keep their level.
  void set(const MoneyView& view);
  // kResourceExhausted with the limit and the time to wait.
  Status admit(AccountId account, ApiKeyId key);
  void note_tokens(AccountId account, ApiKeyId key, std::int64_t input, std::int64_t output);

 private:
  struct Bucket {
    std::int64_t limit = 0;  // 0: none
    double level = 0;
    Clock::Instant filled{};
  };
  struct Subject {
    Bucket requests, input, output;
  };
  using Subjects = std::unordered_map<std::uint64_t, Subject>;

  void set(Subjects& subjects, const std::unordered_map<std::uint64_t, Limits>& limits);
  void set(Bucket& bucket, const std::optional<std::int64_t>& limit);
  void fill(Bucket& bucket);
  Status check(Subject& subject, std::string_view whose);
  Status check(Bucket& bucket, double needed, std::string_view whose, std::string_view what);

  const Clock& clock_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  Subjects accounts_, keys_;  // guarded by mutex_
};

}  // namespace flotilla::coordinator
