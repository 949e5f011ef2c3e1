// A second Prepare elsewhere when the first is not answered. Only prepared twice, never started
// twice: the first lease is started, the other attempt is cancelled. So a hedge costs a rendered
// prompt, and a node that hangs costs a moment instead of a deadline.
#include "flotilla/base/check.h"
#include "flotilla/coordinator/gateway/dispatcher.h"
#include "flotilla/log/log.h"
#include "flotilla/protocol/identity.h"

namespace flotilla::coordinator {

bool Dispatcher::is_hedge(const Job& job, const ProviderRecord& provider, std::uint32_t attempt) {
  return job.hedge && job.hedge->provider == &provider && job.hedge->attempt == attempt;
}

void Dispatcher::hedge(Job& job) {
  const Request& request = *table_.request(job.request);
  // Those who wait need the slot more.
  if (queues_.contains(request.model) || num_hedges_ >= limits_.max_hedges) return;
  RouteWish wish = wish_for(job);
  std::vector<ProviderId> excluded = job.excluded;
  excluded.push_back(job.provider->id);
  wish.excluded = excluded;
  wish.ask = request.ask.get();
  const Route route = router_.take_slot(request.model, wish);
  if (!route) return;
  ProviderRecord& provider = *route.provider;
  job.hedge = Hedge{&provider, ++job.newest_attempt, route};
  ++num_hedges_;
  const Clock::Instant now = clock_.now();
  if (provider.jobs.empty()) provider.pulse.start(now);
  provider.jobs.insert(job.id);
  log::info(
      "prepare_hedged",
      {{"job", protocol::to_hex(job.id)}, {"silent", job.provider->node}, {"node", provider.node}});
  provider.link->send_prepare(request.prepare, job.choice, job.id, job.hedge->attempt);
}

Hedge Dispatcher::take_hedge(Job& job) {
  FLOTILLA_CHECK(job.hedge.has_value(), "there is no hedge");
  Hedge taken = *job.hedge;
  job.hedge.reset();
  --num_hedges_;
  return taken;
}

void Dispatcher::drop_hedge(Job& job, End end, std::string_view how) {
  if (!job.hedge) return;
  const Hedge dropped = take_hedge(job);
  const std::string& model = table_.request(job.request)->model;
  metrics_.attempt_ended(how);
  router_.prefill_done(*dropped.provider, model, dropped.route.prefill_tokens);
  dropped.provider->jobs.erase(job.id);
  if (end == End::kDone) {
    router_.release_slot(*dropped.provider, model);
    return;
  }
  table_.add_cancelled(job.id, dropped.attempt, {dropped.provider->id, model, clock_.now()});
  dropped.provider->link->send(protocol::Cancel{std::string(how)}, job.id, dropped.attempt);
}

// The first attempt is over or given up; the hedge is the attempt from now on.
void Dispatcher::promote_hedge(Job& job, End end, std::string_view how) {
  const Hedge promoted = take_hedge(job);
  end_attempt(job, end, how);
  job.provider = promoted.provider;
  job.attempt = promoted.attempt;
  job.route = promoted.route;
  job.attempt_since = job.last_progress = clock_.now();
  metrics_.hedge_won();
}

}  // namespace flotilla::coordinator
