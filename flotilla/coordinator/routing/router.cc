#include "flotilla/coordinator/routing/router.h"

#include <algorithm>
#include <set>

#include "flotilla/base/check.h"
#include "flotilla/coordinator/routing/facts.h"

namespace flotilla::coordinator {
namespace {

// Of the index, which is in the order of a usual prompt, so many are compared for the prompt at
// hand.
constexpr std::size_t kCompared = 32;
constexpr double kEqualSeconds = 0.1, kEqualShare = 0.25;
constexpr double kUsualBytesPerToken = 4;
constexpr std::size_t kMinPrefixTokens = 32;  // less is not worth a thought
constexpr std::int64_t kUsualAnswer = 256;    // where the client sets no limit

bool has_other_weights(const ModelSlot& slot, const RouteWish& wish) {
  const protocol::ModelOffer& offer = slot.offer;
  return (!wish.model_digest.empty() && offer.model_digest != wish.model_digest) ||
         (!wish.numerics_id.empty() && offer.numerics_id != wish.numerics_id);
}

bool is_excluded(const ProviderRecord& provider, const RouteWish& wish) {
  return std::find(wish.excluded.begin(), wish.excluded.end(), provider.id) != wish.excluded.end();
}

bool fits(const ProviderRecord& provider, const ModelSlot& slot, const RouteWish& wish) {
  // An answer that has begun goes on with its weights, whatever the name means by now.
  const bool right_version = slot.serves() || !wish.model_digest.empty();
  return right_version && !is_excluded(provider, wish) && !has_other_weights(slot, wish);
}

bool has_room(const ModelSlot& slot, const gates::Ask& ask) {
  return slot.offer.context_length <= 0 || ask.prompt_tokens <= slot.offer.context_length;
}

const ModelSlot* slot_of(const ProviderRecord& provider, const std::string& model) {
  const auto at = provider.slots.find(model);
  return at == provider.slots.end() ? nullptr : &at->second;
}

}  // namespace

bool Router::gate_admits(const ModelSlot& slot, const gates::Ask& ask) const {
  if (modes_.state != gates::Mode::kOn) return true;
  return gates::state_gate(slot_facts(&slot, clock_.now()), slot.facts.state, ask).admitted();
}

Route Router::best_of(const Set& set, const ProviderRegistry::ModelIndex& index,
                      const std::string& model, const RouteWish& wish, Room room) const {
  Route out;
  const gates::Ask ask = job_ask(model, wish);
  const std::int64_t tokens = ask.prompt_tokens + wish.resumed_tokens;
  const Clock::Instant now = clock_.now();
  struct Candidate {
    double seconds;
    const RouteKey* key;
    const ModelSlot* slot;
  };
  std::array<Candidate, kCompared> found;
  std::size_t num_found = 0;
  for (const RouteKey& key : set) {
    const ModelSlot& slot = *slot_of(*key.provider, model);
    if (!fits(*key.provider, slot, wish) || !gate_admits(slot, ask)) continue;
    if (room == Room::kWanted && !has_room(slot, ask)) continue;
    if (wish.ask == nullptr) {  // the order of the index is all that there is
      out.provider = key.provider;
      return out;
    }
    found[num_found++] = {
        expect_first_content(*key.provider, slot, index.prefill_per_token, tokens, now).seconds(),
        &key, &slot};
    if (num_found == kCompared) break;
  }
  if (num_found == 0) return out;
  double soonest = found[0].seconds;
  for (std::size_t i = 1; i < num_found; ++i) soonest = std::min(soonest, found[i].seconds);
  const double limit = soonest + std::max(kEqualSeconds, kEqualShare * soonest);
  const Candidate* chosen = nullptr;
  const auto comes_first = [](const RouteKey& a, const RouteKey& b) {
    return std::pair(a.load, a.last_pick) < std::pair(b.load, b.last_pick);
  };
  for (std::size_t i = 0; i < num_found; ++i) {
    if (found[i].seconds > limit) continue;
    if (chosen == nullptr || comes_first(*found[i].key, *chosen->key)) chosen = &found[i];
  }
  out.provider = chosen->key->provider;
  out.prefill_tokens = tokens;
  out.prefill_ahead = chosen->slot->prefill_tokens;
  // A holder of the prefix is compared with the soonest of all, not with the chosen one: being a
  // little slower is no reason to compute everything again.
  double least = soonest;
  prefixes_.visit(wish.ask->prefixes, now, [&](const PrefixTable::Holder& holder, const Prefix& p) {
    ProviderRecord* provider = registry_.find(holder.provider);
    const ModelSlot* slot = provider == nullptr ? nullptr : slot_of(*provider, model);
    if (slot == nullptr || slot->place != &set || !fits(*provider, *slot, wish)) return true;
    if (!gate_admits(*slot, ask)) return true;
    if (room == Room::kWanted && !has_room(*slot, ask)) return true;
    const std::int64_t saved = std::min(holder.tokens, tokens - 1);
    if (saved < static_cast<std::int64_t>(kMinPrefixTokens)) return true;
    const double seconds =
        expect_first_content(*provider, *slot, index.prefill_per_token, tokens - saved, now)
            .seconds();
    if (out.saved_tokens > 0 ? seconds >= least : seconds > least) return true;
    least = seconds;
    out.provider = provider;
    out.saved_tokens = saved;
    out.saved_prefix = p.hash;
    out.prefill_tokens = tokens - saved;
    out.prefill_ahead = slot->prefill_tokens;
    return true;
  });
  if (modes_.state == gates::Mode::kShadow) {
    const ModelSlot& slot = *slot_of(*out.provider, model);
    out.shadow = gates::state_gate(slot_facts(&slot, now), slot.facts.state, ask).reason;
  }
  return out;
}

Route Router::best(const std::string& model, const RouteWish& wish) const {
  const auto* index = registry_.model(model);
  if (index == nullptr) return {};
  // Where the context seems too short for the prompt only when no other will do: it is a guess.
  for (const Room room : {Room::kWanted, Room::kWhatever}) {
    if (Route route = best_of(index->free, *index, model, wish, room)) return route;
    if (Route route = best_of(index->cooling, *index, model, wish, room)) return route;
    if (index->num_sound > 0) continue;
    if (Route route = best_of(index->shunned, *index, model, wish, room)) return route;
  }
  return {};
}

Route Router::take_slot(const std::string& model, const RouteWish& wish) {
  Route route = best(model, wish);
  if (!route) return route;
  ModelSlot& slot = route.provider->slots.at(model);
  ++slot.num_attempts;
  slot.last_pick = ++num_picks_;
  slot.prefill_tokens += route.prefill_tokens;
  registry_.reindex(*route.provider, model);
  return route;
}

void Router::release_slot(ProviderRecord& provider, const std::string& model) {
  const auto at = provider.slots.find(model);
  if (at == provider.slots.end()) return;
  FLOTILLA_CHECK(at->second.num_attempts > 0, "a slot was released twice");
  --at->second.num_attempts;
  registry_.reindex(provider, model);
}

void Router::prefill_done(ProviderRecord& provider, const std::string& model, std::int64_t tokens) {
  const auto at = provider.slots.find(model);
  if (at == provider.slots.end() || tokens == 0) return;
  FLOTILLA_CHECK(at->second.prefill_tokens >= tokens, "a prompt was done twice");
  at->second.prefill_tokens -= tokens;
  registry_.reindex(provider, model);
}

bool Router::any_free(const std::string& model) const {
  const auto* index = registry_.model(model);
  if (index == nullptr) return false;
  return !index->free.empty() || !index->cooling.empty() ||
         (index->num_sound == 0 && !index->shunned.empty());
}

std::size_t Router::num_candidates(const std::string& model, const RouteWish& wish) const {
  const auto* index = registry_.model(model);
  if (index == nullptr) return 0;
  if (wish.excluded.empty() && wish.model_digest.empty() && wish.numerics_id.empty() &&
      registry_.catalog().empty())
    return index->members.size();
  return static_cast<std::size_t>(
      std::count_if(index->members.begin(), index->members.end(),
                    [&](const ProviderRecord* p) { return fits(*p, p->slots.at(model), wish); }));
}

std::size_t Router::num_reachable(const std::string& model, const RouteWish& wish) const {
  const auto* index = registry_.model(model);
  if (index == nullptr) return 0;
  return static_cast<std::size_t>(std::count_if(
      index->members.begin(), index->members.end(), [&](const ProviderRecord* provider) {
        const ModelSlot& slot = provider->slots.at(model);
        return !provider->silent && !provider->draining && !slot.stuck && slot.offer.loaded &&
               fits(*provider, slot, wish);
      }));
}

std::int64_t Router::expected_tokens(const std::string& model, const RouteAsk& ask) const {
  if (ask.prompt_tokens > 0) return ask.prompt_tokens;
  const auto* index = registry_.model(model);
  const double per_token = index != nullptr && index->bytes_per_token.known()
                               ? index->bytes_per_token.value
                               : kUsualBytesPerToken;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(ask.prompt_bytes) / per_token));
}

void Router::learn_prompt(const std::string& model, const RouteAsk& ask,
                          const ProviderRecord& provider, std::int64_t tokens) {
  if (tokens <= 0 || ask.prefixes.empty()) return;
  if (ask.prompt_tokens == 0) {
    registry_.note_prompt(model,
                          static_cast<double>(ask.prompt_bytes) / static_cast<double>(tokens));
  }
  const Clock::Instant now = clock_.now();
  prefixes_.note(ask.prefixes.back().hash, provider.id, tokens, now);
  // What many conversations have in common: the system's message and the tools.
  const Prefix& first = ask.prefixes.front();
  if (ask.prefixes.size() > 1 && ask.prompt_bytes > 0) {
    prefixes_.note(
        first.hash, provider.id,
        static_cast<std::int64_t>(static_cast<double>(tokens) * static_cast<double>(first.bytes) /
                                  static_cast<double>(ask.prompt_bytes)),
        now);
  }
}

void Router::learn_outcome(ProviderRecord& provider, const std::string& model,
                           const Outcome& outcome) {
  const auto at = provider.slots.find(model);
  if (at == provider.slots.end()) return;
  const Clock::Instant now = clock_.now();
  ModelHistory& history = at->second.history;
  if (outcome.first_seconds > 0 && outcome.computed_tokens > 0) {
    const double network = provider.round_trip.known() ? provider.round_trip.value : 0;
    const double seconds = std::max(outcome.first_seconds - network, 1e-6);
    history.prefill.add(outcome.computed_tokens, seconds, now);
    registry_.note_prefill(model, seconds / static_cast<double>(outcome.computed_tokens));
  }
  if (outcome.all_seconds > 0) history.job_seconds.add(outcome.all_seconds, now);
  if (outcome.saved_tokens > 0 && outcome.cached_tokens == 0)
    prefixes_.forget(outcome.saved_prefix, provider.id);
  registry_.reindex(provider, model);
}

gates::Ask Router::job_ask(const std::string& model, const RouteWish& wish) const {
  gates::Ask ask;
  if (wish.ask != nullptr) {
    ask.prompt_tokens = expected_tokens(model, *wish.ask);
    ask.exact = wish.ask->prompt_tokens > 0;
    ask.max_tokens = wish.ask->max_tokens > 0 ? wish.ask->max_tokens : kUsualAnswer;
  }
  return ask;
}

gates::Verdict Router::judge(const ProviderRecord& provider, const std::string& model,
                             const RouteWish& wish) const {
  const Clock::Instant now = clock_.now();
  const ModelSlot* slot = slot_of(provider, model);
  gates::Ask ask = job_ask(model, wish);
  ask.tried = is_excluded(provider, wish);
  ask.any_version = !wish.model_digest.empty();
  ask.other_weights = slot != nullptr && has_other_weights(*slot, wish);
  static const gates::ModelFacts kUnknown;
  return gates::judge(node_facts(provider, registry_.model(model), now), slot_facts(slot, now),
                      slot == nullptr ? kUnknown : slot->facts, ask, modes_);
}

std::optional<gates::Verdict> Router::hopeless(const std::string& model,
                                               const RouteWish& wish) const {
  const auto* index = registry_.model(model);
  std::optional<gates::Verdict> out;
  if (index == nullptr) return out;
  for (const ProviderRecord* provider : index->members) {
    const gates::Verdict verdict = judge(*provider, model, wish);
    if (!gates::is_permanent(verdict.reason)) return std::nullopt;
    out = verdict;
  }
  return out;
}

gates::OutlookOf Router::outlook(const std::string& model, const RouteWish& wish) const {
  gates::OutlookOf out;
  if (const auto* index = registry_.model(model)) {
    for (const ProviderRecord* provider : index->members) out.add(judge(*provider, model, wish));
  }
  return out;
}

Router::Expectation Router::expect(const ProviderRecord& provider, const std::string& model,
                                   const RouteWish& wish) const {
  Expectation out;
  const ModelSlot* slot = slot_of(provider, model);
  const auto* index = registry_.model(model);
  if (slot == nullptr || index == nullptr) return out;
  const Clock::Instant now = clock_.now();
  out.prompt_tokens = wish.ask == nullptr ? kUsualPrompt : expected_tokens(model, *wish.ask);
  if (wish.ask != nullptr) {
    prefixes_.visit(wish.ask->prefixes, now, [&](const PrefixTable::Holder& holder, const Prefix&) {
      if (holder.provider != provider.id) return true;
      out.saved_tokens = std::min(holder.tokens, out.prompt_tokens - 1);
      return false;
    });
  }
  out.time = expect_first_content(provider, *slot, index->prefill_per_token,
                                  out.prompt_tokens - out.saved_tokens, now);
  return out;
}

}  // namespace flotilla::coordinator
