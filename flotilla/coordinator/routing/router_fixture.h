// Nodes in a registry, for tests of the router. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "flotilla/coordinator/routing/router.h"

namespace flotilla::coordinator {

struct SilentLink final : NodeLink {
  void send(protocol::CoordinatorMessage, const JobId&, std::uint32_t) override {}
  void send_prepare(std::shared_ptr<const protocol::Prepare>, std::uint32_t, const JobId&,
                    std::uint32_t) override {}
  void close(Error) override {}
  std::size_t queued_bytes() const override { return 0; }
};

inline ProviderRecord& add(ProviderRegistry& registry, const std::string& name, std::uint32_t slots,
                           const std::vector<std::string>& models = {"m"}) {
  auto record = std::make_unique<ProviderRecord>();
  record->id = ProviderId{name};
  record->link = std::make_shared<SilentLink>();
  ProviderRecord& provider = registry.add(std::move(record));
  std::vector<protocol::ModelOffer> offers;
  for (const std::string& model : models) {
    offers.emplace_back();
    offers.back().id = model;
    offers.back().max_concurrent = slots;
  }
  registry.set_models(provider, offers);
  return provider;
}

// A registry and its router, on a clock that stands still.
class Routing : public ::testing::Test {
 protected:
  ProviderRecord& join(const std::string& name, std::uint32_t slots = 4,
                       const std::vector<std::string>& models = {"m"}) {
    return add(registry, name, slots, models);
  }
  void reports_prefill(ProviderRecord& provider, double tokens_per_s) {
    ModelSlot& slot = provider.slots.at("m");
    slot.load.prefill_tokens_per_s = tokens_per_s;
    slot.load_at = clock.now();
    registry.reindex(provider, "m");
  }
  // A prompt of so many tokens, with a beginning for each of `hashes`, evenly spread.
  static RouteAsk prompt(std::int64_t tokens, const std::vector<std::uint64_t>& hashes = {}) {
    RouteAsk ask;
    ask.prompt_tokens = tokens;
    ask.prompt_bytes = static_cast<std::size_t>(tokens) * 4;
    for (std::size_t i = 0; i < hashes.size(); ++i)
      ask.prefixes.push_back({hashes[i], ask.prompt_bytes * (i + 1) / hashes.size()});
    return ask;
  }
  // Takes a slot and says where.
  std::string take(const RouteAsk& ask) {
    const Route route = router.take_slot("m", {.ask = &ask});
    return route ? route.provider->id.value : "none";
  }

  FakeClock clock;
  ProviderRegistry registry{clock};
  Router router{registry, clock};
};

}  // namespace flotilla::coordinator
