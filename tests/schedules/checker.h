// Checks schedules on one model against the solo runs of their requests, and makes failing ones
// small.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "machine.h"
#include "play.h"
#include "schedule.h"

namespace flotilla::schedules {

// The solo runs of requests: alone, whole prompt in one step, one thread, much memory. Each is
// computed once. Thread-safe.
class SoloRuns {
 public:
  // `reference` is the caller's own; every machine gives the same answers, which is checked too.
  std::shared_ptr<const Trace> get(const RequestSpec& request, const Machine& reference);
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Trace>> traces_;  // guarded by mutex_
};

// One per thread.
class Checker {
 public:
  Checker(const checkpoint::Checkpoint& checkpoint, std::vector<Variant> variants, int broken_rows,
          SoloRuns& solos);

  // What is wrong with it; empty: nothing.
  Result<std::string> check(const Schedule& schedule, Coverage& coverage);
  // A smaller schedule that still fails; `schedule` must. At most `max_tries` runs.
  Result<Schedule> shrink(Schedule schedule, int max_tries);

 private:
  Result<const Machine*> machine(std::size_t variant);

  const checkpoint::Checkpoint& checkpoint_;
  const std::vector<Variant> variants_;
  const int broken_rows_;
  SoloRuns& solos_;
  std::vector<Machine> machines_;  // as variants_; made when first needed
};

}  // namespace flotilla::schedules
