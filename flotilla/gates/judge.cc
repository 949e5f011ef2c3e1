#include "flotilla/gates/judge.h"

#include <algorithm>

namespace flotilla::gates {
namespace {

Verdict refuse(Reason reason, std::uint64_t needed = 0, std::uint64_t available = 0,
               std::optional<milliseconds> changes_in = {}) {
  Verdict out;
  out.reason = reason;
  out.needed = needed;
  out.available = available;
  out.changes_in = changes_in;
  return out;
}

std::optional<milliseconds> if_known(milliseconds time) {
  return time.count() > 0 ? std::optional(time) : std::nullopt;
}

// Goes through gates that can be switched, keeps the first that would refuse in shadow.
class Gate {
 public:
  // True when it refuses; then `out` is the verdict.
  bool refuses(Mode mode, const Verdict& verdict, Verdict& out) {
    if (mode == Mode::kOff || verdict.admitted()) return false;
    if (mode == Mode::kOn) {
      out = verdict;
      out.shadow = shadow_.reason;
      return true;
    }
    if (shadow_.admitted()) shadow_ = verdict;
    return false;
  }
  Verdict with_shadow(Verdict verdict) const {
    verdict.shadow = shadow_.reason;
    if (verdict.admitted()) {
      verdict.needed = shadow_.needed;
      verdict.available = shadow_.available;
    }
    return verdict;
  }

 private:
  Verdict shadow_;
};

}  // namespace

Verdict hardware_gate(const NodeFacts& node, const SlotFacts& slot, const ModelFacts& model) {
  const std::uint64_t machine = smallest_machine(model.size);
  if (machine > 0 && node.memory_bytes > 0 && machine > node.memory_bytes)
    return refuse(Reason::kTooLarge, machine, node.memory_bytes);
  // What was measured needs no rule of thumb.
  const bool measured = model.size.resident_bytes > 0 || model.size.weight_bytes > 0;
  const std::uint64_t need = need_to_load(model.size, model.state, slot.context_length);
  if (measured && node.usable_bytes > 0 && need > node.usable_bytes)
    return refuse(Reason::kTooLarge, need, node.usable_bytes);
  return {};
}

Verdict load_gate(const NodeFacts& node, const SlotFacts& slot, const ModelFacts& model) {
  const std::uint64_t need = need_to_load(model.size, model.state, slot.context_length);
  if (need == 0) return {};
  // A node that has said nothing has, as far as anybody knows, all that it may use.
  std::uint64_t free = node.free_for_load.value_or(node.usable_bytes);
  if (!node.free_for_load && node.usable_bytes == 0) return {};
  free += node.idle_resident_bytes;
  if (need > free) return refuse(Reason::kNoRoomToLoad, need, free);
  return {};
}

Verdict state_gate(const SlotFacts& slot, const StateCost& cost, const Ask& ask) {
  const std::int64_t tokens = ask.prompt_tokens + ask.max_tokens;
  if (ask.prompt_tokens <= 0) return {};
  if (ask.exact && slot.context_length > 0 && ask.prompt_tokens > slot.context_length) {
    return refuse(Reason::kTooLong, static_cast<std::uint64_t>(ask.prompt_tokens),
                  static_cast<std::uint64_t>(slot.context_length));
  }
  if (!cost.known() || slot.state_total == 0) return {};
  std::uint64_t need =
      cost.bytes(slot.context_length > 0 ? std::min(tokens, slot.context_length) : tokens);
  if (!ask.exact) need = std::min(need, slot.state_total);  // the node knows better when it is idle
  // Nothing else running: a sequence that does not fit then fits never.
  if (ask.exact && cost.bytes(ask.prompt_tokens) > slot.state_total)
    return refuse(Reason::kTooLong, cost.bytes(ask.prompt_tokens), slot.state_total);
  const std::uint64_t free = slot.state_total - std::min(slot.state_total, slot.state_used);
  if (need > free) return refuse(Reason::kNoStateMemory, need, free, if_known(slot.slot_free_in));
  return {};
}

Verdict judge(const NodeFacts& node, const SlotFacts& slot, const ModelFacts& model, const Ask& ask,
              const Modes& modes) {
  if (!slot.listed) return refuse(Reason::kModelNotServed);
  if (slot.other_version && !ask.any_version) return refuse(Reason::kOtherVersion);
  if (ask.tried) return refuse(Reason::kAlreadyTried);
  if (ask.other_weights) return refuse(Reason::kOtherWeights);
  if (node.cooldown.count() > 0) return refuse(Reason::kCooldown, 0, 0, node.cooldown);
  if (node.silent) return refuse(Reason::kSilent);
  if (node.draining) return refuse(Reason::kDraining);
  if (!slot.healthy) return refuse(Reason::kEngineUnhealthy);
  if (slot.stuck) return refuse(Reason::kEngineStuck);
  Gate gate;
  Verdict out;
  // A model that is resident has proved that it fits.
  if (!slot.resident && gate.refuses(modes.hardware, hardware_gate(node, slot, model), out))
    return out;
  const Verdict state = state_gate(slot, model.state, ask);
  if (is_permanent(state.reason) && gate.refuses(modes.state, state, out)) return out;
  if (slot.refused_for.count() > 0)
    return gate.with_shadow(refuse(Reason::kRefusedLately, 0, 0, slot.refused_for));
  if (slot.resident) {
    if (slot.num_jobs >= slot.max_jobs) {
      return gate.with_shadow(
          refuse(Reason::kNoSlot, slot.num_jobs + 1, slot.max_jobs, if_known(slot.slot_free_in)));
    }
    if (!is_permanent(state.reason) && gate.refuses(modes.state, state, out)) return out;
    return gate.with_shadow({});
  }
  if (slot.loading)
    return gate.with_shadow(refuse(Reason::kLoading, 0, 0, if_known(slot.loaded_in)));
  const Verdict load = load_gate(node, slot, model);
  if (gate.refuses(modes.load, load, out)) return out;
  Verdict cold =
      refuse(Reason::kNotLoaded, need_to_load(model.size, model.state, slot.context_length),
             node.free_for_load.value_or(0), if_known(slot.loaded_in));
  return gate.with_shadow(cold);
}

void OutlookOf::add(const Verdict& verdict) {
  ++count_of(counts_, verdict.reason);
  if (verdict.changes_in && (!first_ || *verdict.changes_in < *first_)) first_ = verdict.changes_in;
}

Outlook OutlookOf::get() const {
  Outlook out;
  std::uint32_t of_model = 0, for_good = 0;
  for (std::size_t i = 0; i < kNumReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    if (reason == Reason::kModelNotServed) continue;
    of_model += counts_[i];
    if (is_permanent(reason)) for_good += counts_[i];
  }
  out.permanent = of_model > 0 && for_good == of_model;
  if (first_) out.retry_in = *first_;
  return out;
}

}  // namespace flotilla::gates
