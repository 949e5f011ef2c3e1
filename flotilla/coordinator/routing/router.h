// Chooses the node for a job. Core strand only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "flotilla/base/ids.h"
#include "flotilla/coordinator/registry/provider_registry.h"

namespace flotilla::coordinator {

class Router {
 public:
  explicit Router(ProviderRegistry& registry) : registry_(registry) {}

  // The least loaded node that can start a job of `model` now and is not in `excluded`; among
  // equals the one chosen longest ago. Takes one of its slots. nullptr when there is none.
  ProviderRecord* take_slot(const std::string& model, std::span<const ProviderId> excluded);
  void release_slot(ProviderRecord& provider, const std::string& model);

  // How many nodes list `model` and are not in `excluded`.
  std::size_t num_candidates(const std::string& model, std::span<const ProviderId> excluded) const;

 private:
  ProviderRegistry& registry_;
  std::uint64_t num_picks_ = 0;
};

}  // namespace flotilla::coordinator
