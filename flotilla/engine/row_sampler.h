// Samples the rows of a step side by side: a row of a large vocabulary takes milliseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "flotilla/backend/cpu/thread_pool.h"
#include "flotilla/sampling/logprobs.h"
#include "flotilla/sampling/sampler.h"

namespace flotilla::engine {

// The next token of one row. Views: they stay valid until run() returns.
struct SamplingTask {
  const sampling::Sampler* sampler = nullptr;
  std::span<const float> logits = {};  // or, where a few candidates decide:
  const backend::Shortlist* shortlist = nullptr;
  std::span<const TokenId> banned = {};  // a shortlist knows already
  std::span<const std::uint32_t> allowed = {};
  int top_logprobs = -1;  // below 0: no logprobs at all; others need logits
  // Set by run().
  Result<TokenId> token = Error{ErrorCode::kInternal, "not sampled"};
  std::optional<sampling::RowLogprobs> logprobs = {};
};

// Owned by one thread. Results do not depend on the number of threads.
class RowSampler {
 public:
  explicit RowSampler(int num_threads);  // includes the caller
  void run(std::span<SamplingTask> tasks);
  // Forgets what the last rows were likely to say.
  void wipe();
  const sampling::SamplerScratch& scratch() const { return scratch_.front(); }  // the caller's

 private:
  std::vector<sampling::SamplerScratch> scratch_;  // one per thread
  std::unique_ptr<backend::ThreadPool> pool_;      // made when it is first of use
};

}  // namespace flotilla::engine
