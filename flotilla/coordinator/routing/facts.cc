#include "flotilla/coordinator/routing/facts.h"

#include <algorithm>
#include <cmath>

#include "flotilla/coordinator/registry/first_content.h"

namespace flotilla::coordinator {
namespace {

std::chrono::milliseconds until(Clock::Instant then, Clock::Instant now) {
  if (then <= now) return std::chrono::milliseconds(0);
  return std::chrono::ceil<std::chrono::milliseconds>(then - now);
}

std::chrono::milliseconds in_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

}  // namespace

gates::NodeFacts node_facts(const ProviderRecord& provider,
                            const ProviderRegistry::ModelIndex* index, Clock::Instant now) {
  gates::NodeFacts facts;
  // A card's memory is not the machine's: what may be used of it is all that is known.
  if (provider.hardware.accelerator.empty()) facts.memory_bytes = provider.hardware.memory_bytes;
  facts.usable_bytes = provider.hardware.memory_cap_bytes;
  facts.free_for_load = provider.free_bytes;
  facts.silent = provider.silent;
  facts.draining = provider.draining;
  // After few faults it only comes last; and nobody is left alone while there is no other.
  if (provider.cooling() && provider.shunned && index != nullptr && index->num_sound > 0)
    facts.cooldown = std::max(until(provider.cooling_until, now), std::chrono::milliseconds(1));
  return facts;
}

gates::SlotFacts slot_facts(const ModelSlot* slot, Clock::Instant now) {
  gates::SlotFacts facts;
  facts.listed = slot != nullptr && slot->listed && slot->standing != Standing::kNotServed;
  if (!facts.listed) return facts;
  facts.other_version = slot->standing == Standing::kOtherVersion;
  facts.resident = slot->offer.loaded;
  facts.loading = slot->loading_since.has_value();
  facts.healthy = slot->load.healthy;
  facts.stuck = slot->stuck;
  if (slot->busy_until != Clock::Instant{})
    facts.refused_for = std::max(until(slot->busy_until, now), std::chrono::milliseconds(1));
  facts.num_jobs = slot->num_attempts;
  facts.max_jobs = slot->offer.max_concurrent;
  facts.context_length = slot->offer.context_length;
  facts.state_used = slot->load.kv_bytes_used;
  facts.state_total = slot->load.kv_bytes_total;
  // Jobs end at even distances, so to say: one of n within the n-th part of what one takes.
  const Evidence& job = slot->history.job_seconds;
  if (job.known() && slot->num_attempts > 0)
    facts.slot_free_in = in_ms(job.value / static_cast<double>(slot->num_attempts));
  if (!facts.resident) {
    const auto load = in_ms(expect_load(*slot).seconds);
    facts.loaded_in = facts.loading ? std::max(until(*slot->loading_since + load, now),
                                               std::chrono::milliseconds(1))
                                    : load;
  }
  return facts;
}

}  // namespace flotilla::coordinator
