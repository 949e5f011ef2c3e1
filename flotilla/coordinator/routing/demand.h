// How often models are asked for: an average over the last minutes. Core strand only.
#pragma once

#include <string>
#include <unordered_map>

#include "flotilla/base/clock.h"

namespace flotilla::coordinator {

class Demand {
 public:
  void note(const std::string& model, Clock::Instant now);
  double per_second(const std::string& model, Clock::Instant now) const;

 private:
  struct Rate {
    double per_second = 0;
    Clock::Instant at{};
  };
  static double decayed(const Rate& rate, Clock::Instant now);
  std::unordered_map<std::string, Rate> rates_;
};

}  // namespace flotilla::coordinator
