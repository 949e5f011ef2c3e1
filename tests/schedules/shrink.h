// Makes a failing schedule small: proposes simpler ones and keeps those that still fail.
#pragma once

#include <optional>
#include <vector>

#include "schedule.h"

namespace flotilla::schedules {

// Knows nothing of models. Use: while (auto s = next()) report(fails(*s)).
class Shrinker {
 public:
  explicit Shrinker(Schedule failing) : best_(std::move(failing)) { propose(); }

  // Something simpler than best() to try; nullopt when nothing is left.
  std::optional<Schedule> next();
  // Whether that one fails too.
  void report(bool fails);
  const Schedule& best() const { return best_; }

 private:
  void propose();

  Schedule best_;
  std::vector<Schedule> candidates_;
  std::size_t at_ = 0;        // goes round: what was just tried comes last
  std::size_t failures_ = 0;  // in a row
};

}  // namespace flotilla::schedules
