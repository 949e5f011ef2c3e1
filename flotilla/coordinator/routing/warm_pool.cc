#include "flotilla/coordinator/routing/warm_pool.h"

#include <algorithm>
#include <tuple>

#include "flotilla/coordinator/routing/facts.h"

namespace flotilla::coordinator {
namespace {

constexpr double kHorizon = 300;  // seconds in which a model is missed
// A swap must win clearly, or two models would push each other out.
constexpr double kClearly = 2;

bool can_serve(const ProviderRecord& provider, const ModelSlot& slot) {
  return slot.listed && slot.offer.loaded && slot.serves() && !provider.silent &&
         !provider.draining && !slot.stuck;
}

}  // namespace

bool WarmPool::suppressed(const ProviderId& provider, const std::string& model,
                          Clock::Instant now) const {
  const auto at = suppressed_.find({provider, model});
  return at != suppressed_.end() && now < at->second;
}

bool WarmPool::is_loading(const ProviderRecord& provider) {
  return std::any_of(provider.slots.begin(), provider.slots.end(),
                     [](const auto& entry) { return entry.second.loading_since.has_value(); });
}

bool WarmPool::wants_load(const Wanted& wanted, const ProviderRegistry::ModelIndex& index) const {
  double jobs_per_second = 0;
  std::size_t num_serving = 0;
  double load_seconds = 0;
  for (const ProviderRecord* provider : index.members) {
    const ModelSlot& slot = provider->slots.at(wanted.model);
    if (slot.loading_since) return false;  // one is on its way
    if (!slot.offer.loaded) load_seconds = std::max(load_seconds, expect_load(slot).seconds);
    if (!can_serve(*provider, slot)) continue;
    ++num_serving;
    if (slot.history.job_seconds.known() && slot.history.job_seconds.value > 0)
      jobs_per_second += slot.offer.max_concurrent / slot.history.job_seconds.value;
  }
  if (num_serving == 0) return true;
  // A further copy is worth its load when the queue takes longer than that to go.
  return jobs_per_second > 0 &&
         static_cast<double>(wanted.num_queued) / jobs_per_second > kClearly * load_seconds;
}

std::vector<WarmPool::Candidate> WarmPool::candidates(
    const std::string& model, const ProviderRegistry::ModelIndex& index) const {
  const Clock::Instant now = clock_.now();
  std::vector<Candidate> out;
  for (ProviderRecord* provider : index.members) {
    const ModelSlot& slot = provider->slots.at(model);
    if (is_loading(*provider) || suppressed(provider->id, model, now)) continue;
    // Memory is judged below, whatever the gates' modes: a swap needs the numbers.
    const gates::Verdict verdict = router_.judge(*provider, model, {});
    if (verdict.reason != gates::Reason::kNotLoaded &&
        verdict.reason != gates::Reason::kNoRoomToLoad)
      continue;
    Candidate one;
    one.provider = provider;
    one.jobs = provider->jobs.size();
    one.seconds = router_.expect(*provider, model, {}).time.seconds();
    one.load =
        gates::load_gate(node_facts(*provider, &index, now), slot_facts(&slot, now), slot.facts);
    out.push_back(one);
  }
  // Where there is room, then the idle ones, then the soonest.
  std::sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
    const auto place = [](const Candidate& c) {
      return std::tuple(!c.load.admitted(), c.jobs > 0, c.seconds, c.jobs,
                        std::string_view(c.provider->id.value));
    };
    return place(a) < place(b);
  });
  return out;
}

double WarmPool::loss_of(const std::string& model, const ModelSlot& slot,
                         Clock::Instant now) const {
  const auto* index = registry_.model(model);
  std::size_t num_resident = 0;
  for (const ProviderRecord* provider : index->members)
    num_resident += can_serve(*provider, provider->slots.at(model)) ? 1 : 0;
  // Who asks for it then waits for a load; with other copies only their share does.
  const double missed = demand_.per_second(model, now) * kHorizon;
  return missed / static_cast<double>(std::max<std::size_t>(num_resident, 1)) *
         expect_load(slot).seconds;
}

double WarmPool::gain_of(const Wanted& wanted, const ModelSlot& slot, Clock::Instant now) const {
  const double served =
      static_cast<double>(wanted.num_queued) + demand_.per_second(wanted.model, now) * kHorizon;
  return served * expect_load(slot).seconds;
}

std::vector<std::string> WarmPool::victims(const Wanted& wanted, const Candidate& candidate) const {
  const Clock::Instant now = clock_.now();
  const ProviderRecord& provider = *candidate.provider;
  if (candidate.load.needed <= candidate.load.available) return {};
  struct Victim {
    double loss_per_byte;
    double loss;
    std::uint64_t bytes;
    std::string model;
  };
  std::vector<Victim> idle;
  for (const auto& [model, slot] : provider.slots) {
    if (!slot.listed || !slot.offer.loaded || slot.num_attempts > 0 || model == wanted.model)
      continue;
    const auto since = resident_since_.find({provider.id, model});
    if (since != resident_since_.end() && now - since->second < limits_.min_resident) continue;
    const std::uint64_t bytes = slot.offer.resident_bytes + slot.load.kv_bytes_total;
    if (bytes == 0) continue;
    const double loss = loss_of(model, slot, now);
    idle.push_back({loss / static_cast<double>(bytes), loss, bytes, model});
  }
  std::sort(idle.begin(), idle.end(), [](const Victim& a, const Victim& b) {
    return std::tuple(a.loss_per_byte, a.bytes, std::string_view(a.model)) <
           std::tuple(b.loss_per_byte, b.bytes, std::string_view(b.model));
  });
  std::uint64_t free = candidate.load.available;
  double loss = 0;
  std::vector<std::string> out;
  for (const Victim& victim : idle) {
    if (free >= candidate.load.needed) break;
    free += victim.bytes;
    loss += victim.loss;
    out.push_back(victim.model);
  }
  if (free < candidate.load.needed) return {};
  const double gain = gain_of(wanted, provider.slots.at(wanted.model), now);
  return kClearly * loss < gain ? out : std::vector<std::string>{};
}

std::vector<WarmOrder> WarmPool::plan(std::span<const Wanted> wanted) {
  std::vector<WarmOrder> orders;
  if (limits_.mode == WarmMode::kOff) return orders;
  const Clock::Instant now = clock_.now();
  std::size_t num_loads = 0;
  for (ProviderRecord* provider : registry_.providers()) {
    for (auto& [model, slot] : provider->slots) {
      if (slot.loading_since && now - *slot.loading_since >= limits_.order_timeout)
        slot.loading_since.reset();
    }
    num_loads += is_loading(*provider) ? 1 : 0;
  }
  for (const Wanted& one : wanted) {
    const auto* index = registry_.model(one.model);
    if (index == nullptr || one.num_queued == 0 || num_loads >= limits_.max_loads ||
        !wants_load(one, *index))
      continue;
    const std::vector<Candidate> found = candidates(one.model, *index);
    // Room that was made for a load is waited for.
    const bool room_comes = std::any_of(found.begin(), found.end(), [&](const Candidate& c) {
      const auto at = making_room_.find(c.provider->id);
      return !c.load.admitted() && at != making_room_.end() && now < at->second;
    });
    for (const Candidate& candidate : found) {
      ProviderRecord& provider = *candidate.provider;
      const bool has_room = candidate.load.admitted();
      if (!has_room && room_comes) break;
      if (!has_room && limits_.mode == WarmMode::kSwap) {
        const std::vector<std::string> going = victims(one, candidate);
        if (going.empty()) continue;
        for (const std::string& model : going) {
          provider.slots.at(model).offer.loaded = false;  // nothing more is given to it
          registry_.reindex(provider, model);
          orders.push_back({WarmOrder::What::kUnload, &provider, model});
        }
        making_room_[provider.id] = now + limits_.room_timeout;
        break;
      }
      // Without room by its own numbers the node is asked only while those are on trial.
      if (!has_room && router_.modes().load == gates::Mode::kOn) break;
      provider.slots.at(one.model).loading_since = now;
      orders.push_back({WarmOrder::What::kLoad, &provider, one.model});
      ++num_loads;
      break;
    }
  }
  return orders;
}

void WarmPool::on_status(ProviderRecord& provider, const std::string& model,
                         protocol::ModelState state, const Error* failure) {
  const auto slot = provider.slots.find(model);
  if (slot == provider.slots.end()) return;
  const Clock::Instant now = clock_.now();
  std::optional<Clock::Instant>& since = slot->second.loading_since;
  switch (state) {
    case protocol::ModelState::kLoading:
      if (!since) since = now;
      break;
    case protocol::ModelState::kLoaded:
      if (since) {
        const double took = std::chrono::duration<double>(now - *since).count();
        slot->second.history.load_seconds.add(took, now);
      }
      since.reset();
      resident_since_[{provider.id, model}] = now;
      broken_.erase({provider.id, model});
      making_room_.erase(provider.id);
      break;
    case protocol::ModelState::kUnloaded:
      since.reset();
      resident_since_.erase({provider.id, model});
      break;
    case protocol::ModelState::kFailed: {
      since.reset();
      const bool passes = failure != nullptr && (failure->code == ErrorCode::kResourceExhausted ||
                                                 failure->code == ErrorCode::kUnavailable);
      if (!passes) broken_.insert({provider.id, model});
      suppressed_[{provider.id, model}] =
          now + (passes ? limits_.after_refusal : limits_.after_failure);
      break;
    }
  }
}

void WarmPool::leave_alone(const ProviderId& provider, const std::string& model) {
  suppressed_[{provider, model}] = clock_.now() + limits_.after_refusal;
}

void WarmPool::forget(const ProviderId& provider) {
  making_room_.erase(provider);
  std::erase_if(resident_since_, [&](const auto& entry) { return entry.first.first == provider; });
  std::erase_if(broken_, [&](const Pair& pair) { return pair.first == provider; });
  // What failed there may fail again: suppression stays until it is over.
  const Clock::Instant now = clock_.now();
  std::erase_if(suppressed_, [&](const auto& entry) { return entry.second <= now; });
}

bool WarmPool::may_load(const std::string& model) const {
  const auto* index = registry_.model(model);
  if (limits_.mode == WarmMode::kOff || index == nullptr) return false;
  return std::any_of(index->members.begin(), index->members.end(), [&](const auto* provider) {
    if (broken_.contains({provider->id, model})) return false;
    const gates::Reason reason = router_.judge(*provider, model, {}).reason;
    return reason == gates::Reason::kNotLoaded || reason == gates::Reason::kLoading ||
           (reason == gates::Reason::kNoRoomToLoad && limits_.mode == WarmMode::kSwap);
  });
}

}  // namespace flotilla::coordinator
