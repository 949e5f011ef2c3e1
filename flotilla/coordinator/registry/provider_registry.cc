#include "flotilla/coordinator/registry/provider_registry.h"

#include <algorithm>
#include <map>

#include "flotilla/base/check.h"
#include "flotilla/coordinator/registry/first_content.h"

namespace flotilla::coordinator {
namespace {

gates::ModelFacts facts_of(const protocol::ModelOffer& offer) {
  gates::ModelFacts facts;
  facts.size.resident_bytes = offer.resident_bytes;
  facts.state.fixed_bytes = offer.state_fixed_bytes;
  for (const protocol::StateCostClass& c : offer.state_classes)
    facts.state.classes.push_back({c.bytes_per_token, c.max_tokens});
  return facts;
}

}  // namespace

ProviderRecord& ProviderRegistry::add(std::unique_ptr<ProviderRecord> record) {
  const auto [at, fresh] = providers_.emplace(record->id, nullptr);
  FLOTILLA_CHECK(fresh, "a provider was added twice");
  at->second = std::move(record);
  return *at->second;
}

void ProviderRegistry::remove(const ProviderId& id) {
  const auto at = providers_.find(id);
  if (at == providers_.end()) return;
  for (auto& [model, slot] : at->second->slots) {
    ModelIndex& index = models_[model];
    if (slot.place != nullptr) slot.place->erase(slot.key);
    if (slot.sound) --index.num_sound;
    index.members.erase(at->second.get());
  }
  std::erase_if(busy_, [&](const Busy& busy) { return busy.provider == id; });
  providers_.erase(at);
}

ProviderRecord* ProviderRegistry::find(const ProviderId& id) {
  const auto at = providers_.find(id);
  return at == providers_.end() ? nullptr : at->second.get();
}

void ProviderRegistry::set_models(ProviderRecord& provider,
                                  const std::vector<protocol::ModelOffer>& models) {
  for (auto& [name, slot] : provider.slots) {
    models_[name].members.erase(&provider);
    slot.listed = false;
  }
  for (const protocol::ModelOffer& offer : models) {
    ModelSlot& slot = provider.slots[offer.id];
    if (slot.listed) continue;  // named twice
    slot.offer = offer;
    slot.offer.max_concurrent = std::max(1u, offer.max_concurrent);
    slot.offered_context = offer.context_length;
    apply_catalog(slot);
    slot.listed = true;
    slot.load.model = offer.id;
    models_[offer.id].members.insert(&provider);
  }
  reindex_all(provider);
  std::erase_if(provider.slots, [](const auto& entry) {
    return !entry.second.listed && entry.second.num_attempts == 0;
  });
}

void ProviderRegistry::apply_catalog(ModelSlot& slot) const {
  slot.facts = facts_of(slot.offer);
  slot.offer.context_length = slot.offered_context;
  slot.version = 0;
  slot.standing = catalog_->standing(slot.offer.id, slot.offer.model_digest);
  const CatalogEntry* entry = catalog_->find(slot.offer.id, slot.offer.model_digest);
  if (entry == nullptr) return;
  slot.version = entry->version;
  // A node may serve less than the model can, never more.
  if (entry->context_length > 0) {
    slot.offer.context_length = slot.offered_context > 0
                                    ? std::min(slot.offered_context, entry->context_length)
                                    : entry->context_length;
  }
  slot.offer.family = entry->family;
  apply(*entry, slot.facts);
}

void ProviderRegistry::set_catalog(std::shared_ptr<const CatalogView> catalog) {
  catalog_ = std::move(catalog);
  for (const CatalogEntry& entry : catalog_->entries()) {
    if (entry.state == CatalogState::kActive) know_model(entry.model);
  }
  for (const auto& [id, provider] : providers_) {
    for (auto& [model, slot] : provider->slots) apply_catalog(slot);
    reindex_all(*provider);
  }
}

void ProviderRegistry::reindex(ProviderRecord& provider, const std::string& model) {
  const auto at = provider.slots.find(model);
  if (at == provider.slots.end()) return;
  ModelSlot& slot = at->second;
  ModelIndex& index = models_[model];
  if (slot.place != nullptr) slot.place->erase(slot.key);
  if (slot.sound) --index.num_sound;
  slot.place = nullptr;
  const bool able = slot.listed && slot.offer.loaded && slot.load.healthy && !slot.stuck &&
                    !provider.draining && !provider.silent;
  const bool shunned = provider.cooling() && provider.shunned;
  slot.sound = able && !shunned && slot.serves();
  if (slot.sound) ++index.num_sound;
  if (!able || slot.num_attempts >= slot.offer.max_concurrent ||
      slot.busy_until != Clock::Instant{}) {
    return;
  }
  const FirstContent usual =
      expect_first_content(provider, slot, index.prefill_per_token, kUsualPrompt, clock_.now());
  slot.key = {time_step(usual.seconds()),
              (std::uint64_t{slot.num_attempts} << 16) / slot.offer.max_concurrent, slot.last_pick,
              &provider};
  slot.place = shunned ? &index.shunned : provider.cooling() ? &index.cooling : &index.free;
  slot.place->insert(slot.key);
}

void ProviderRegistry::reindex_all(ProviderRecord& provider) {
  for (const auto& [model, slot] : provider.slots) reindex(provider, model);
}

void ProviderRegistry::mark_busy(ProviderRecord& provider, const std::string& model,
                                 Clock::Instant until) {
  const auto at = provider.slots.find(model);
  if (at == provider.slots.end()) return;
  at->second.busy_until = until;
  busy_.push_back({until, provider.id, model});
  reindex(provider, model);
}

std::vector<std::string> ProviderRegistry::expire_busy(Clock::Instant now) {
  std::vector<std::string> models;
  std::erase_if(busy_, [&](const Busy& busy) {
    if (busy.until > now) return false;
    ProviderRecord* provider = find(busy.provider);
    if (provider == nullptr) return true;
    const auto slot = provider->slots.find(busy.model);
    // A later refusal has its own entry.
    if (slot == provider->slots.end() || slot->second.busy_until > now) return true;
    slot->second.busy_until = {};
    reindex(*provider, busy.model);
    models.push_back(busy.model);
    return true;
  });
  return models;
}

const ProviderRegistry::ModelIndex* ProviderRegistry::model(const std::string& name) const {
  const auto at = models_.find(name);
  return at == models_.end() ? nullptr : &at->second;
}

void ProviderRegistry::note_prefill(const std::string& model, double seconds_per_token) {
  if (const auto at = models_.find(model); at != models_.end())
    at->second.prefill_per_token.add(seconds_per_token, clock_.now());
}

void ProviderRegistry::note_prompt(const std::string& model, double bytes_per_token) {
  if (const auto at = models_.find(model); at != models_.end())
    at->second.bytes_per_token.add(bytes_per_token, clock_.now());
}

std::vector<ProviderRecord*> ProviderRegistry::providers() {
  std::vector<ProviderRecord*> out;
  out.reserve(providers_.size());
  for (const auto& [id, record] : providers_) out.push_back(record.get());
  return out;
}

std::vector<std::string> ProviderRegistry::listed_models() const {
  std::vector<std::string> out;
  for (const auto& [name, index] : models_) {
    if (!index.members.empty()) out.push_back(name);
  }
  return out;
}

std::vector<serving::ModelEntry> ProviderRegistry::entries() const {
  std::map<std::string, serving::ModelEntry> entries;
  for (const auto& [id, record] : providers_) {
    for (const auto& [name, slot] : record->slots) {
      if (!slot.listed || !slot.offer.loaded || !slot.serves()) continue;
      serving::ModelEntry& entry = entries[name];
      // Nodes may differ; a client is promised what every one of them can do.
      const bool first = entry.id.empty();
      entry.id = name;
      entry.created = std::max(entry.created, slot.offer.created);
      entry.context_length = first ? slot.offer.context_length
                                   : std::min(entry.context_length, slot.offer.context_length);
      if (const CatalogEntry* known = catalog_->active(name))
        entry.capabilities = known->capabilities;
    }
  }
  std::vector<serving::ModelEntry> out;
  for (auto& [name, entry] : entries) out.push_back(std::move(entry));
  return out;
}

}  // namespace flotilla::coordinator
