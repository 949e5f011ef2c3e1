// Chooses the node for a job. Core strand only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "flotilla/base/ids.h"
#include "flotilla/coordinator/registry/provider_registry.h"

namespace flotilla::coordinator {

// What a node must be for a job.
struct RouteWish {
  std::span<const ProviderId> excluded = {};
  // An answer that has begun can only be continued by the same weights, and bit by bit only where
  // the numbers are the same. Empty: any.
  std::string_view model_digest = {};
  std::string_view numerics_id = {};
};

class Router {
 public:
  explicit Router(ProviderRegistry& registry) : registry_(registry) {}

  // The least loaded node that can start a job of `model` now and is as wished; among equals the
  // one chosen longest ago. Takes one of its slots. nullptr when there is none. Nodes that cool
  // down after a fault come last; those with several faults in a row only where there is no other
  // node.
  ProviderRecord* take_slot(const std::string& model, const RouteWish& wish);
  void release_slot(ProviderRecord& provider, const std::string& model);

  // Whether take_slot would give a node.
  bool has_slot(const std::string& model, const RouteWish& wish) const;
  // Whether the model has a free slot at all.
  bool any_free(const std::string& model) const;
  // How many nodes list `model` and are as wished, whatever their state.
  std::size_t num_candidates(const std::string& model, const RouteWish& wish) const;
  // Of those, how many can be hoped for without waiting for their return: not silent, not draining.
  std::size_t num_reachable(const std::string& model, const RouteWish& wish) const;

 private:
  ProviderRecord* find(const std::string& model, const RouteWish& wish) const;

  ProviderRegistry& registry_;
  std::uint64_t num_picks_ = 0;
};

}  // namespace flotilla::coordinator
