#include "flotilla/coordinator/gateway/in_flight.h"

#include "flotilla/base/check.h"

namespace flotilla::coordinator {

Request& InFlightTable::add_request(Request request) {
  const RequestId id = request.id;
  const auto [at, fresh] = requests_.emplace(id, std::move(request));
  FLOTILLA_CHECK(fresh, "a request id was used twice");
  return at->second;
}

Job& InFlightTable::add_job(Request& request, const JobId& id, std::uint32_t choice) {
  const auto [at, fresh] = jobs_.emplace(id, Job{});
  FLOTILLA_CHECK(fresh, "a job id was used twice");
  Job& job = at->second;
  job.id = id;
  job.request = request.id;
  job.choice = choice;
  request.jobs.push_back(id);
  return job;
}

Request* InFlightTable::request(RequestId id) {
  const auto at = requests_.find(id);
  return at == requests_.end() ? nullptr : &at->second;
}

Job* InFlightTable::job(const JobId& id) {
  const auto at = jobs_.find(id);
  return at == jobs_.end() ? nullptr : &at->second;
}

void InFlightTable::erase_job(const JobId& id) {
  const auto at = jobs_.find(id);
  if (at == jobs_.end()) return;
  if (Request* owner = request(at->second.request)) std::erase(owner->jobs, id);
  jobs_.erase(at);
}

void InFlightTable::erase_request(RequestId id) { requests_.erase(id); }

void InFlightTable::add_cancelled(const JobId& job, std::uint32_t attempt,
                                  CancelledAttempt cancelled) {
  cancelled_.emplace(AttemptKey{job, attempt}, std::move(cancelled));
}

std::optional<CancelledAttempt> InFlightTable::take_cancelled(const JobId& job,
                                                              std::uint32_t attempt) {
  const auto at = cancelled_.find({job, attempt});
  if (at == cancelled_.end()) return std::nullopt;
  std::optional<CancelledAttempt> out(std::move(at->second));
  cancelled_.erase(at);
  return out;
}

bool InFlightTable::is_cancelled(const JobId& job, std::uint32_t attempt) const {
  return cancelled_.contains({job, attempt});
}

std::vector<CancelledAttempt> InFlightTable::take_overdue(Clock::Instant now,
                                                          std::chrono::nanoseconds limit) {
  std::vector<CancelledAttempt> out;
  std::erase_if(cancelled_, [&](auto& entry) {
    if (now - entry.second.since < limit) return false;
    out.push_back(std::move(entry.second));
    return true;
  });
  return out;
}

void InFlightTable::drop_cancelled_of(const ProviderId& provider) {
  std::erase_if(cancelled_, [&](const auto& entry) { return entry.second.provider == provider; });
}

}  // namespace flotilla::coordinator
