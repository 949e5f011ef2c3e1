// The till that the dispatcher uses: decides from what holds now, and lets the bank write.
#pragma once

#include <functional>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/gateway/till.h"
#include "flotilla/coordinator/money/bank.h"
#include "flotilla/coordinator/money/rate_limits.h"

namespace flotilla::coordinator {

class BankTill final : public Till {
 public:
  // Everything must outlive it. `core` runs a task on the core strand.
  BankTill(Bank& bank, RateLimits& limits, const Clock& clock,
           std::function<void(std::function<void()>)> core);

  bool must_hold(const std::string& model, AccountId payer, const ProviderId& node) const override;
  void hold(ReserveOrder order, std::function<void(Result<Reservation>)> done) override;
  void continued_on(const JobId& job, const ProviderId& node) override;
  void delivered(const JobId& job, const TokenCounts& so_far) override;
  void end(EndedJob job) override;

 private:
  Bank& bank_;
  RateLimits& limits_;
  const Clock& clock_;
  const std::function<void(std::function<void()>)> core_;
};

// Whose the nodes were; nodes without an owner are the operator's.
std::vector<ServedShare> owners_of(const MoneyView& view,
                                   const std::vector<std::pair<ProviderId, std::uint64_t>>& served);

}  // namespace flotilla::coordinator
