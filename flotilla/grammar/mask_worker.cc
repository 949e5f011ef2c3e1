#include "flotilla/grammar/mask_worker.h"

#include <exception>
#include <string>
#include <utility>

#include "flotilla/base/check.h"

namespace flotilla::grammar {

OutputConstraint& ConstrainedOutput::constraint() {
  FLOTILLA_CHECK(state_.load(std::memory_order_acquire) == State::kNone,
                 "a constraint is touched while its mask is computed");
  return constraint_;
}

void ConstrainedOutput::want(std::int64_t num_left, bool wants_more) {
  FLOTILLA_CHECK(state_.load(std::memory_order_acquire) == State::kNone, "a mask was not taken");
  num_left_ = num_left;
  wants_more_ = wants_more;
  state_.store(State::kWanted, std::memory_order_release);
}

bool ConstrainedOutput::take() {
  State state = State::kWanted;
  if (state_.compare_exchange_strong(state, State::kBusy, std::memory_order_acq_rel)) {
    const Result<bool> filled = constraint_.try_allowed(num_left_, wants_more_, words_);
    if (filled.ok() && !*filled) {
      state_.store(State::kWanted, std::memory_order_release);
      return false;
    }
    status_ = filled.ok() ? ok_status() : Status(filled.error());
  } else if (state != State::kDone) {
    return false;
  }
  state_.store(State::kNone, std::memory_order_release);
  return true;
}

bool ConstrainedOutput::compute() {
  State state = State::kWanted;
  if (!state_.compare_exchange_strong(state, State::kBusy, std::memory_order_acq_rel)) {
    return false;
  }
  try {
    status_ = constraint_.allowed(num_left_, wants_more_, words_);
  } catch (const std::exception& error) {
    status_ = Error{ErrorCode::kInternal, std::string("a mask failed: ") + error.what()};
  }
  state_.store(State::kDone, std::memory_order_release);
  return true;
}

MaskWorker::MaskWorker(std::function<void()> on_done) : on_done_(std::move(on_done)) {
  thread_ = std::thread([this] { run(); });
}

MaskWorker::~MaskWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void MaskWorker::post(std::shared_ptr<ConstrainedOutput> output) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(output->is_posted_, true)) return;
    waiting_.push_back(std::move(output));
  }
  wake_.notify_one();
}

void MaskWorker::run() {
  while (true) {
    std::shared_ptr<ConstrainedOutput> output;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      output = std::move(waiting_.front());
      waiting_.pop_front();
      output->is_posted_ = false;
    }
    if (output->compute()) on_done_();
  }
}

}  // namespace flotilla::grammar
