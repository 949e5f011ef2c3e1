// What the gates are told about nodes of the registry. Core strand only.
#pragma once

#include "flotilla/coordinator/registry/provider_registry.h"
#include "flotilla/gates/judge.h"

namespace flotilla::coordinator {

gates::NodeFacts node_facts(const ProviderRecord& provider,
                            const ProviderRegistry::ModelIndex* index, Clock::Instant now);
// nullptr: the node does not list the model.
gates::SlotFacts slot_facts(const ModelSlot* slot, Clock::Instant now);

}  // namespace flotilla::coordinator
