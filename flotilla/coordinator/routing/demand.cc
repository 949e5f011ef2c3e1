#include "flotilla/coordinator/routing/demand.h"

#include <cmath>

namespace flotilla::coordinator {
namespace {
constexpr double kSeconds = 300;  // what is older counts less than a third
}

double Demand::decayed(const Rate& rate, Clock::Instant now) {
  const double age = std::chrono::duration<double>(now - rate.at).count();
  return rate.per_second * std::exp(-age / kSeconds);
}

void Demand::note(const std::string& model, Clock::Instant now) {
  Rate& rate = rates_[model];
  rate = {decayed(rate, now) + 1 / kSeconds, now};
}

double Demand::per_second(const std::string& model, Clock::Instant now) const {
  const auto at = rates_.find(model);
  return at == rates_.end() ? 0 : decayed(at->second, now);
}

}  // namespace flotilla::coordinator
