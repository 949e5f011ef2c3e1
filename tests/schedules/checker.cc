#include "checker.h"

#include "shrink.h"

namespace flotilla::schedules {

std::shared_ptr<const Trace> SoloRuns::get(const RequestSpec& request, const Machine& reference) {
  const std::string key = to_text(request);
  {
    std::lock_guard lock(mutex_);
    if (const auto found = traces_.find(key); found != traces_.end()) return found->second;
  }
  Schedule alone{.max_batch_tokens = 1 << 20, .prefill_chunk = 1 << 20, .max_sequences = 1};
  alone.arrivals.push_back({.request = request});
  const std::shared_ptr<const Trace> no_answer;
  Played played = play(alone, reference, std::span(&no_answer, 1));
  FLOTILLA_CHECK(played.problem.empty() && played.traces[0].finish.has_value(),
                 "a solo run does not end");
  const auto& error = played.traces[0].finish->error;
  FLOTILLA_CHECK(!error.has_value(), "a solo run fails: " + error->message);
  auto trace = std::make_shared<const Trace>(std::move(played.traces[0]));
  std::lock_guard lock(mutex_);
  return traces_.emplace(key, std::move(trace)).first->second;
}

std::size_t SoloRuns::size() const {
  std::lock_guard lock(mutex_);
  return traces_.size();
}

Checker::Checker(const checkpoint::Checkpoint& checkpoint, std::vector<Variant> variants,
                 int broken_rows, SoloRuns& solos)
    : checkpoint_(checkpoint),
      variants_(std::move(variants)),
      broken_rows_(broken_rows),
      solos_(solos),
      machines_(variants_.size()) {}

Result<const Machine*> Checker::machine(std::size_t variant) {
  Machine& machine = machines_[variant % machines_.size()];
  if (machine.model == nullptr) {
    FLOTILLA_TRY(machine,
                 make_machine(checkpoint_, variants_[variant % machines_.size()], broken_rows_));
  }
  return &machine;
}

Result<std::string> Checker::check(const Schedule& schedule, Coverage& coverage) {
  FLOTILLA_TRY(const Machine* reference, machine(0));
  FLOTILLA_TRY(const Machine* machine, this->machine(schedule.variant));
  std::vector<std::shared_ptr<const Trace>> solos;
  for (const Arrival& arrival : schedule.arrivals) {
    solos.push_back(solos_.get(arrival.request, *reference));
  }
  const Played played = play(schedule, *machine, solos);
  coverage.add(played.coverage);
  for (std::size_t i = 0; i < schedule.arrivals.size(); ++i) {
    const std::string what = difference(schedule.arrivals[i], played.traces[i], *solos[i]);
    if (!what.empty() && played.problem.empty()) {
      return "request " + std::to_string(i) + ": " + what;
    }
  }
  return played.problem;
}

Result<Schedule> Checker::shrink(Schedule schedule, int max_tries) {
  Shrinker shrinker(std::move(schedule));
  Coverage ignored;
  for (int tries = 0; tries < max_tries; ++tries) {
    const std::optional<Schedule> candidate = shrinker.next();
    if (!candidate) break;
    FLOTILLA_TRY(const std::string problem, check(*candidate, ignored));
    shrinker.report(!problem.empty());
  }
  return shrinker.best();
}

}  // namespace flotilla::schedules
