#include "flotilla/coordinator/routing/router.h"

#include <algorithm>
#include <set>

#include "flotilla/base/check.h"

namespace flotilla::coordinator {
namespace {

bool fits(const ProviderRecord& provider, const std::string& model, const RouteWish& wish) {
  if (std::find(wish.excluded.begin(), wish.excluded.end(), provider.id) != wish.excluded.end())
    return false;
  if (wish.model_digest.empty() && wish.numerics_id.empty()) return true;
  const auto slot = provider.slots.find(model);
  if (slot == provider.slots.end()) return false;
  const protocol::ModelOffer& offer = slot->second.offer;
  return (wish.model_digest.empty() || offer.model_digest == wish.model_digest) &&
         (wish.numerics_id.empty() || offer.numerics_id == wish.numerics_id);
}

}  // namespace

ProviderRecord* Router::find(const std::string& model, const RouteWish& wish) const {
  const auto* index = registry_.model(model);
  if (index == nullptr) return nullptr;
  const auto first_of = [&](const std::set<RouteKey>& keys) -> ProviderRecord* {
    const auto at = std::find_if(keys.begin(), keys.end(), [&](const RouteKey& key) {
      return fits(*key.provider, model, wish);
    });
    return at == keys.end() ? nullptr : at->provider;
  };
  if (ProviderRecord* provider = first_of(index->free)) return provider;
  if (ProviderRecord* provider = first_of(index->cooling)) return provider;
  return index->num_sound == 0 ? first_of(index->shunned) : nullptr;
}

ProviderRecord* Router::take_slot(const std::string& model, const RouteWish& wish) {
  ProviderRecord* provider = find(model, wish);
  if (provider == nullptr) return nullptr;
  ModelSlot& slot = provider->slots.at(model);
  ++slot.num_attempts;
  slot.last_pick = ++num_picks_;
  registry_.reindex(*provider, model);
  return provider;
}

void Router::release_slot(ProviderRecord& provider, const std::string& model) {
  const auto at = provider.slots.find(model);
  if (at == provider.slots.end()) return;
  FLOTILLA_CHECK(at->second.num_attempts > 0, "a slot was released twice");
  --at->second.num_attempts;
  registry_.reindex(provider, model);
}

bool Router::has_slot(const std::string& model, const RouteWish& wish) const {
  return find(model, wish) != nullptr;
}

bool Router::any_free(const std::string& model) const { return find(model, {}) != nullptr; }

std::size_t Router::num_candidates(const std::string& model, const RouteWish& wish) const {
  const auto* index = registry_.model(model);
  if (index == nullptr) return 0;
  if (wish.excluded.empty() && wish.model_digest.empty() && wish.numerics_id.empty())
    return index->members.size();
  return static_cast<std::size_t>(
      std::count_if(index->members.begin(), index->members.end(),
                    [&](const ProviderRecord* provider) { return fits(*provider, model, wish); }));
}

std::size_t Router::num_reachable(const std::string& model, const RouteWish& wish) const {
  const auto* index = registry_.model(model);
  if (index == nullptr) return 0;
  return static_cast<std::size_t>(std::count_if(
      index->members.begin(), index->members.end(), [&](const ProviderRecord* provider) {
        return !provider->silent && !provider->draining && !provider->slots.at(model).stuck &&
               provider->slots.at(model).offer.loaded && fits(*provider, model, wish);
      }));
}

}  // namespace flotilla::coordinator
