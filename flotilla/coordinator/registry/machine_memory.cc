#include "flotilla/coordinator/registry/machine_memory.h"

#include <algorithm>

namespace flotilla::coordinator {

MachineMemory::Machine& MachineMemory::machine(const ProviderId& id, Clock::Instant now) {
  if (machines_.size() >= limits_.max_machines && !machines_.contains(id)) {
    machines_.erase(std::min_element(
        machines_.begin(), machines_.end(),
        [](const auto& a, const auto& b) { return a.second.touched < b.second.touched; }));
  }
  Machine& found = machines_[id];
  found.touched = now;
  return found;
}

void MachineMemory::fault(const ProviderId& id, Clock::Instant now) {
  Machine& found = machine(id, now);
  if (now - found.last_fault >= limits_.forgiven_after) found.num_faults = 0;
  ++found.num_faults;
  found.last_fault = now;
}

void MachineMemory::success(const ProviderId& id) {
  if (const auto at = machines_.find(id); at != machines_.end()) at->second.num_faults = 0;
}

std::chrono::milliseconds MachineMemory::cooldown(const ProviderId& id, Clock::Instant now) const {
  using std::chrono::milliseconds;
  const auto at = machines_.find(id);
  if (at == machines_.end() || at->second.num_faults == 0) return milliseconds(0);
  if (now - at->second.last_fault >= limits_.forgiven_after) return milliseconds(0);
  const std::uint32_t doublings = std::min(at->second.num_faults - 1, 20u);
  return std::min(limits_.longest_cooldown,
                  limits_.first_cooldown * (std::int64_t{1} << doublings));
}

std::uint32_t MachineMemory::num_faults(const ProviderId& id) const {
  const auto at = machines_.find(id);
  return at == machines_.end() ? 0 : at->second.num_faults;
}

void MachineMemory::keep_speed(const ProviderId& id, const protocol::SlotLoad& load,
                               Clock::Instant now) {
  if (load.decode_tokens_per_s <= 0 && load.prefill_tokens_per_s <= 0) return;
  machine(id, now).speeds[load.model] = {load.decode_tokens_per_s, load.prefill_tokens_per_s};
}

void MachineMemory::recall_speed(const ProviderId& id, protocol::SlotLoad& load) const {
  const auto at = machines_.find(id);
  if (at == machines_.end()) return;
  const auto speed = at->second.speeds.find(load.model);
  if (speed == at->second.speeds.end()) return;
  load.decode_tokens_per_s = speed->second.decode;
  load.prefill_tokens_per_s = speed->second.prefill;
}

void MachineMemory::keep_history(const ProviderId& id, const std::string& model,
                                 const ModelHistory& history, Clock::Instant now) {
  machine(id, now).histories[model] = history;
}

ModelHistory MachineMemory::recall_history(const ProviderId& id, const std::string& model) const {
  const auto at = machines_.find(id);
  if (at == machines_.end()) return {};
  const auto history = at->second.histories.find(model);
  return history == at->second.histories.end() ? ModelHistory{} : history->second;
}

}  // namespace flotilla::coordinator
