#include "bench/fleet/policy.h"

#include <algorithm>
#include <random>
#include <unordered_map>

#include "flotilla/coordinator/routing/router.h"

namespace flotilla::bench {
namespace {

const std::string kModel = "m";
constexpr std::size_t kBytesPerToken = 4;

struct NoLink final : coordinator::NodeLink {
  void send(protocol::CoordinatorMessage, const JobId&, std::uint32_t) override {}
  void send_prepare(std::shared_ptr<const protocol::Prepare>, std::uint32_t, const JobId&,
                    std::uint32_t) override {}
  std::size_t queued_bytes() const override { return 0; }
  void close(Error) override {}
};

// The coordinator's router, fed as its dispatcher feeds it.
class RouterPolicy final : public Policy {
 public:
  RouterPolicy(std::size_t nodes, std::size_t slots, const Clock& clock)
      : clock_(clock), registry_(clock), router_(registry_, clock) {
    for (std::size_t i = 0; i < nodes; ++i) {
      auto record = std::make_unique<coordinator::ProviderRecord>();
      record->id = ProviderId{"node-" + std::to_string(i)};
      record->link = std::make_shared<NoLink>();
      coordinator::ProviderRecord& provider = registry_.add(std::move(record));
      std::vector<protocol::ModelOffer> offers(1);
      offers.front().id = kModel;
      offers.front().max_concurrent = static_cast<std::uint32_t>(slots);
      registry_.set_models(provider, offers);
      index_.emplace(&provider, i);
      providers_.push_back(&provider);
    }
  }

  std::optional<std::size_t> choose(std::uint64_t ticket, const Arrival& arrival) override {
    std::vector<std::int64_t>& lengths = lengths_[arrival.conversation];
    if (lengths.size() <= arrival.turn) lengths.resize(arrival.turn + 1, 0);
    lengths[arrival.turn] = arrival.prompt_tokens;
    coordinator::RouteAsk ask;
    ask.prompt_bytes = static_cast<std::size_t>(arrival.prompt_tokens) * kBytesPerToken;
    ask.max_tokens = arrival.output_tokens;
    for (std::size_t turn = 0; turn <= arrival.turn; ++turn) {
      const bool own = turn == arrival.turn;
      if (!own && (lengths[turn] == 0 || lengths[turn] > arrival.cached_prefix)) continue;
      ask.prefixes.push_back({arrival.conversation * 0x9E3779B97F4A7C15u + turn,
                              static_cast<std::size_t>(lengths[turn]) * kBytesPerToken});
    }
    const coordinator::Route route = router_.take_slot(kModel, {.ask = &ask});
    if (!route) return std::nullopt;
    router_.learn_prompt(kModel, ask, *route.provider, arrival.prompt_tokens);
    taken_.emplace(ticket, Taken{route, arrival.prompt_tokens});
    return index_.at(route.provider);
  }

  void first_content(std::uint64_t ticket) override {
    const coordinator::Route& route = taken_.at(ticket).route;
    router_.prefill_done(*route.provider, kModel, route.prefill_tokens);
  }

  void finished(std::uint64_t ticket, const Outcome& outcome) override {
    const auto at = taken_.find(ticket);
    const coordinator::Route& route = at->second.route;
    router_.learn_outcome(
        *route.provider, kModel,
        {.first_seconds = outcome.first_seconds,
         .computed_tokens = at->second.prompt_tokens - outcome.cached_tokens + route.prefill_ahead,
         .all_seconds = outcome.all_seconds,
         .saved_tokens = route.saved_tokens,
         .cached_tokens = outcome.cached_tokens,
         .saved_prefix = route.saved_prefix});
    router_.release_slot(*route.provider, kModel);
    taken_.erase(at);
  }

  void heartbeat(std::size_t node, std::size_t running, double prefill_tokens_per_s) override {
    coordinator::ProviderRecord& provider = *providers_[node];
    coordinator::ModelSlot& slot = provider.slots.at(kModel);
    slot.load.num_running = static_cast<std::uint32_t>(running);
    slot.load.prefill_tokens_per_s = prefill_tokens_per_s;
    slot.load_at = clock_.now();
    registry_.reindex_all(provider);
  }

 private:
  struct Taken {
    coordinator::Route route;
    std::int64_t prompt_tokens = 0;
  };
  const Clock& clock_;
  coordinator::ProviderRegistry registry_;
  coordinator::Router router_;
  std::vector<coordinator::ProviderRecord*> providers_;
  std::unordered_map<const coordinator::ProviderRecord*, std::size_t> index_;
  std::unordered_map<std::uint64_t, Taken> taken_;
  std::unordered_map<std::uint64_t, std::vector<std::int64_t>> lengths_;  // prompts by turn
};

// Those that know nothing but who has a free slot.
class SimplePolicy final : public Policy {
 public:
  enum class Kind { kRandom, kRoundRobin, kLeastConnections };
  SimplePolicy(Kind kind, std::size_t nodes, std::size_t slots, std::uint64_t seed)
      : kind_(kind), slots_(slots), running_(nodes, 0), random_(seed) {}

  std::optional<std::size_t> choose(std::uint64_t ticket, const Arrival&) override {
    std::vector<std::size_t> free;
    for (std::size_t i = 0; i < running_.size(); ++i)
      if (running_[i] < slots_) free.push_back(i);
    if (free.empty()) return std::nullopt;
    std::size_t node = free.front();
    switch (kind_) {
      case Kind::kRandom:
        node = free[random_() % free.size()];
        break;
      case Kind::kRoundRobin:
        for (const std::size_t candidate : free) {
          if (candidate < next_) continue;
          node = candidate;
          break;
        }
        next_ = (node + 1) % running_.size();
        break;
      case Kind::kLeastConnections: {
        std::size_t fewest = slots_;
        for (const std::size_t candidate : free) fewest = std::min(fewest, running_[candidate]);
        std::erase_if(free, [&](std::size_t i) { return running_[i] > fewest; });
        node = free[random_() % free.size()];
        break;
      }
    }
    ++running_[node];
    taken_.emplace(ticket, node);
    return node;
  }
  void first_content(std::uint64_t) override {}
  void finished(std::uint64_t ticket, const Outcome&) override {
    const auto at = taken_.find(ticket);
    --running_[at->second];
    taken_.erase(at);
  }
  void heartbeat(std::size_t, std::size_t, double) override {}

 private:
  const Kind kind_;
  const std::size_t slots_;
  std::vector<std::size_t> running_;
  std::size_t next_ = 0;
  std::mt19937_64 random_;
  std::unordered_map<std::uint64_t, std::size_t> taken_;
};

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(const std::string& name, std::size_t nodes,
                                            std::size_t slots, const Clock& clock,
                                            std::uint64_t seed) {
  using Made = std::unique_ptr<Policy>;
  const auto simple = [&](SimplePolicy::Kind kind) {
    return Made(std::make_unique<SimplePolicy>(kind, nodes, slots, seed));
  };
  if (name == "router") return Made(std::make_unique<RouterPolicy>(nodes, slots, clock));
  if (name == "random") return simple(SimplePolicy::Kind::kRandom);
  if (name == "round_robin") return simple(SimplePolicy::Kind::kRoundRobin);
  if (name == "least_connections") return simple(SimplePolicy::Kind::kLeastConnections);
  return Error{
      ErrorCode::kInvalidArgument,
      "unknown policy '" + name + "'; there are router, random, round_robin, least_connections"};
}

}  // namespace flotilla::bench
