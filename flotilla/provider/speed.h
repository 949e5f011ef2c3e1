// How fast a model runs here, as moving averages over its jobs.
#pragma once

#include <chrono>
#include <cstdint>

namespace flotilla::provider {

// One thread.
class Speed {
 public:
  // `num_tokens` of one sequence came `took` after the ones before.
  void add_decode(std::int64_t num_tokens, std::chrono::nanoseconds took);
  void add_prefill(std::int64_t num_tokens, std::chrono::nanoseconds took);
  void add_job(std::chrono::nanoseconds took);

  double decode_tokens_per_s() const { return decode_; }  // 0: unknown
  double prefill_tokens_per_s() const { return prefill_; }
  double job_seconds() const { return job_; }

 private:
  double decode_ = 0, prefill_ = 0, job_ = 0;
};

}  // namespace flotilla::provider
