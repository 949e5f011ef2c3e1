#include "flotilla/coordinator/routing/router.h"

#include <algorithm>

#include "flotilla/base/check.h"

namespace flotilla::coordinator {
namespace {

bool contains(std::span<const ProviderId> ids, const ProviderId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

ProviderRecord* Router::take_slot(const std::string& model, std::span<const ProviderId> excluded) {
  const auto* index = registry_.model(model);
  if (index == nullptr) return nullptr;
  for (const RouteKey& key : index->free) {
    ProviderRecord* provider = key.provider;
    if (contains(excluded, provider->id)) continue;
    ModelSlot& slot = provider->slots.at(model);
    ++slot.num_attempts;
    slot.last_pick = ++num_picks_;
    registry_.reindex(*provider, model);  // ends the iteration's validity
    return provider;
  }
  return nullptr;
}

void Router::release_slot(ProviderRecord& provider, const std::string& model) {
  const auto at = provider.slots.find(model);
  if (at == provider.slots.end()) return;
  FLOTILLA_CHECK(at->second.num_attempts > 0, "a slot was released twice");
  --at->second.num_attempts;
  registry_.reindex(provider, model);
}

std::size_t Router::num_candidates(const std::string& model,
                                   std::span<const ProviderId> excluded) const {
  const auto* index = registry_.model(model);
  if (index == nullptr) return 0;
  std::size_t n = index->num_providers;
  for (const ProviderId& id : excluded) {
    ProviderRecord* provider = registry_.find(id);
    if (provider == nullptr) continue;
    const auto slot = provider->slots.find(model);
    if (slot != provider->slots.end() && slot->second.listed) --n;
  }
  return n;
}

}  // namespace flotilla::coordinator
