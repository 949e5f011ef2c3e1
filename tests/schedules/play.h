// Plays a schedule on the real engine, step by step: no thread, no clock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "machine.h"
#include "trace.h"

namespace flotilla::schedules {

// What happened, to show that schedules are not all peace.
struct Coverage {
  std::uint64_t requests = 0;
  std::uint64_t steps = 0;
  std::uint64_t rows = 0;
  std::uint64_t tokens = 0;     // computed, again or for the first time
  std::uint64_t positions = 0;  // whose logits were compared
  std::uint64_t preemptions = 0;
  std::uint64_t pauses = 0;
  std::uint64_t cancels = 0;
  std::uint64_t resumes = 0;
  std::uint64_t faults = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t evictions = 0;
  void add(const Coverage& other);
};

struct Played {
  std::vector<Trace> traces;  // as Schedule::arrivals
  std::string problem;        // of the engine as a whole: it does not end, or kept pages
  Coverage coverage = {};
};

// `answers[i]` is the solo run of arrival i; only those that resume need one, others may be null.
Played play(const Schedule& schedule, const Machine& machine,
            std::span<const std::shared_ptr<const Trace>> answers);

}  // namespace flotilla::schedules
