// Masks ahead of need: a thread computes which tokens may come next while the model computes how
// likely each is.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/grammar/output_constraint.h"

namespace flotilla::grammar {

// One output under a constraint, and the mask of its next token. Its owner calls everything but
// compute(); from want() until the mask is taken the constraint is not to be touched.
class ConstrainedOutput {
 public:
  explicit ConstrainedOutput(OutputConstraint constraint) : constraint_(std::move(constraint)) {}

  OutputConstraint& constraint();
  // Asks for the mask of the next token; see OutputConstraint::allowed().
  void want(std::int64_t num_left, bool wants_more);
  // True once: the mask is there, or was computed here, as that takes a moment only. False while
  // it would take longer: whoever computes must be told of it (again).
  bool take();
  // A mask was computed that nobody has taken.
  bool is_done() const { return state_.load(std::memory_order_acquire) == State::kDone; }
  // After take().
  const Status& status() const { return status_; }
  std::span<const std::uint32_t> mask() const { return words_; }

  // By any thread: computes the mask that is wanted. False when none is, or somebody is at it.
  bool compute();

 private:
  friend class MaskWorker;
  enum class State { kNone, kWanted, kBusy, kDone };

  OutputConstraint constraint_;
  std::int64_t num_left_ = 0;
  bool wants_more_ = false;
  Status status_;
  std::vector<std::uint32_t> words_;
  std::atomic<State> state_{State::kNone};
  bool is_posted_ = false;  // guarded by the worker's mutex
};

// Thread-safe. As many outputs wait here as have posted, each once.
class MaskWorker {
 public:
  // `on_done` is called on the worker's thread after each mask.
  explicit MaskWorker(std::function<void()> on_done);
  ~MaskWorker();  // what waits is left

  void post(std::shared_ptr<ConstrainedOutput> output);

 private:
  void run();

  const std::function<void()> on_done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<ConstrainedOutput>> waiting_;  // guarded by mutex_
  bool stopping_ = false;                                   // guarded by mutex_
  std::thread thread_;
};

}  // namespace flotilla::grammar
