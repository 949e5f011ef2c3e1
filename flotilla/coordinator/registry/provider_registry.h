// The connected nodes, with an index per model of those that can take a job now. Core strand only.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "flotilla/base/clock.h"
#include "flotilla/coordinator/registry/provider_record.h"
#include "flotilla/serving/chat_backend.h"

namespace flotilla::coordinator {

class ProviderRegistry {
 public:
  // `clock` must outlive it.
  explicit ProviderRegistry(const Clock& clock) : clock_(clock) {}

  struct ModelIndex {
    std::set<RouteKey> free;     // able, with a slot, not busy
    std::set<RouteKey> cooling;  // the same after a fault: taken when none of the others is free
    std::set<RouteKey> shunned;  // after several faults: taken when the model has no other node
    std::unordered_set<ProviderRecord*> members;  // that list the model, whatever their state
    std::size_t num_sound = 0;   // loaded, healthy, heard, not draining, not shunned; busy or not
    Evidence prefill_per_token;  // seconds, over all nodes
    Evidence bytes_per_token;    // of prompts
  };

  // Takes a node that is not known yet.
  ProviderRecord& add(std::unique_ptr<ProviderRecord> record);
  void remove(const ProviderId& id);
  ProviderRecord* find(const ProviderId& id);

  // Replaces the list of models; attempts under way keep their slots.
  void set_models(ProviderRecord& provider, const std::vector<protocol::ModelOffer>& models);
  // What is offered is judged by it from now on. Its active models count as known.
  void set_catalog(std::shared_ptr<const CatalogView> catalog);
  const CatalogView& catalog() const { return *catalog_; }
  // To be called after any change of what decides about an index: slot, draining, silent, cooling,
  // and of what is expected of it.
  void reindex(ProviderRecord& provider, const std::string& model);
  void reindex_all(ProviderRecord& provider);

  void mark_busy(ProviderRecord& provider, const std::string& model, Clock::Instant until);
  // Puts back what is no longer busy; returns the models that gained a place.
  std::vector<std::string> expire_busy(Clock::Instant now);

  // A model that nodes served before this process began: its requests may wait for one.
  void know_model(const std::string& name) { models_.try_emplace(name); }
  // What was seen of a model anywhere; nothing for one that no node has listed.
  void note_prefill(const std::string& model, double seconds_per_token);
  void note_prompt(const std::string& model, double bytes_per_token);
  // nullptr for a model that no node has listed and nobody knows.
  const ModelIndex* model(const std::string& name) const;
  std::vector<ProviderRecord*> providers();
  std::size_t num_providers() const { return providers_.size(); }
  std::vector<std::string> listed_models() const;  // by at least one node, loaded or not
  // What clients may ask for: models that are loaded somewhere.
  std::vector<serving::ModelEntry> entries() const;

 private:
  struct Busy {
    Clock::Instant until;
    ProviderId provider;
    std::string model;
  };
  void apply_catalog(ModelSlot& slot) const;

  const Clock& clock_;
  std::shared_ptr<const CatalogView> catalog_ = std::make_shared<CatalogView>();
  std::unordered_map<ProviderId, std::unique_ptr<ProviderRecord>> providers_;
  std::unordered_map<std::string, ModelIndex> models_;
  std::vector<Busy> busy_;
};

}  // namespace flotilla::coordinator
