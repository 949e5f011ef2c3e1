#include "flotilla/engine/row_sampler.h"

#include <algorithm>
#include <cstddef>
#include <exception>

namespace flotilla::engine {
namespace {

// Logits in all; fewer take less time than waking a thread.
constexpr std::size_t kWorthThreads = std::size_t{1} << 16;

void sample(SamplingTask& task, sampling::SamplerScratch& scratch) {
  try {
    task.token = task.shortlist != nullptr
                     ? task.sampler->sample_first(*task.shortlist, !task.allowed.empty(), scratch)
                     : task.sampler->sample(task.logits, task.banned, scratch, task.allowed);
    if (task.token.ok() && task.top_logprobs >= 0) {
      task.logprobs = sampling::row_logprobs(task.logits, *task.token, task.top_logprobs, scratch);
    }
  } catch (const std::exception& error) {
    task.token = Error{ErrorCode::kInternal, error.what()};
  }
}

}  // namespace

RowSampler::RowSampler(int num_threads)
    : scratch_(static_cast<std::size_t>(std::max(1, num_threads))) {}

void RowSampler::run(std::span<SamplingTask> tasks) {
  std::size_t work = 0;
  for (const SamplingTask& task : tasks) work += task.logits.size();
  if (tasks.size() < 2 || scratch_.size() < 2 || work < kWorthThreads) {
    for (SamplingTask& task : tasks) sample(task, scratch_.front());
    return;
  }
  if (pool_ == nullptr) {
    pool_ = std::make_unique<backend::ThreadPool>(static_cast<int>(scratch_.size()));
  }
  pool_->run(static_cast<int>(tasks.size()), [&](int item, int thread) {
    sample(tasks[static_cast<std::size_t>(item)], scratch_[static_cast<std::size_t>(thread)]);
  });
}

void RowSampler::wipe() {
  for (sampling::SamplerScratch& scratch : scratch_) scratch.wipe();
}

}  // namespace flotilla::engine
