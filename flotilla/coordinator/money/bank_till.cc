#include "flotilla/coordinator/money/bank_till.h"

namespace flotilla::coordinator {

std::vector<ServedShare> owners_of(
    const MoneyView& view, const std::vector<std::pair<ProviderId, std::uint64_t>>& served) {
  std::vector<ServedShare> shares;
  for (const auto& [node, tokens] : served) {
    const auto owner = view.owners.find(node);
    shares.push_back({owner == view.owners.end() ? kPlatformAccount : owner->second, tokens});
  }
  return shares;
}

BankTill::BankTill(Bank& bank, RateLimits& limits, const Clock& clock,
                   std::function<void(std::function<void()>)> core)
    : bank_(bank), limits_(limits), clock_(clock), core_(std::move(core)) {}

bool BankTill::must_hold(const std::string& model, AccountId payer, const ProviderId& node) const {
  const auto view = bank_.view();
  if (view->prices.empty()) return false;
  const PriceRow* price = view->prices.in_force(model, clock_.unix_seconds());
  if (price == nullptr || price->price.is_free()) return false;
  const auto owner = view->owners.find(node);
  return owner == view->owners.end() || owner->second != payer;
}

void BankTill::hold(ReserveOrder order, std::function<void(Result<Reservation>)> done) {
  bank_.reserve(std::move(order), [core = core_, done = std::move(done)](Result<Reservation> made) {
    core([done, made = std::move(made)] { done(made); });
  });
}

void BankTill::continued_on(const JobId& job, const ProviderId& node) {
  bank_.continued_on(job, node);
}

void BankTill::delivered(const JobId& job, const TokenCounts& so_far) {
  bank_.delivered(job, so_far);
}

void BankTill::end(EndedJob job) {
  if (job.delivered) {
    limits_.note_tokens(job.account, job.key, job.tokens.prompt, job.tokens.output);
  }
  if (!job.reservation.held()) {
    if (!job.delivered) return;
    bank_.count({day_of(clock_.unix_seconds()), job.account.value, job.key.value, job.model},
                {1, job.tokens.prompt, job.tokens.cached, job.tokens.output, 0});
    return;
  }
  SettleOrder order{job.job,
                    job.account,
                    job.key,
                    std::move(job.model),
                    job.reservation,
                    !job.delivered,
                    job.tokens,
                    owners_of(*bank_.view(), job.served),
                    std::move(job.outcome)};
  bank_.settle(std::move(order));
}

}  // namespace flotilla::coordinator
