// What is remembered of machines over their connections, by their identity: a node that comes back
// is neither a stranger nor innocent.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "flotilla/base/clock.h"
#include "flotilla/base/ids.h"
#include "flotilla/coordinator/registry/evidence.h"
#include "flotilla/protocol/node_messages.h"

namespace flotilla::coordinator {

struct MachineLimits {
  std::chrono::milliseconds first_cooldown{250};
  std::chrono::milliseconds longest_cooldown{60'000};
  std::chrono::minutes forgiven_after{10};  // without a further fault
  std::size_t max_machines = 8'192;
};

// Core strand only.
class MachineMemory {
 public:
  explicit MachineMemory(MachineLimits limits = {}) : limits_(limits) {}

  // It vanished or fell silent.
  void fault(const ProviderId& id, Clock::Instant now);
  // It has finished a job: what was is forgiven.
  void success(const ProviderId& id);
  // How long other nodes are preferred to it: doubles with every fault in a row; zero without.
  std::chrono::milliseconds cooldown(const ProviderId& id, Clock::Instant now) const;
  std::uint32_t num_faults(const ProviderId& id) const;

  void keep_speed(const ProviderId& id, const protocol::SlotLoad& load, Clock::Instant now);
  // What it last said about its speed; zeros when it never did.
  void recall_speed(const ProviderId& id, protocol::SlotLoad& load) const;
  void keep_history(const ProviderId& id, const std::string& model, const ModelHistory& history,
                    Clock::Instant now);
  // Empty when nothing was kept.
  ModelHistory recall_history(const ProviderId& id, const std::string& model) const;
  std::size_t num_machines() const { return machines_.size(); }

 private:
  struct Speed {
    double decode = 0, prefill = 0;
  };
  struct Machine {
    std::uint32_t num_faults = 0;  // since the last success
    Clock::Instant last_fault{};
    Clock::Instant touched{};
    std::unordered_map<std::string, Speed> speeds;            // by model
    std::unordered_map<std::string, ModelHistory> histories;  // by model
  };
  Machine& machine(const ProviderId& id, Clock::Instant now);

  const MachineLimits limits_;
  std::unordered_map<ProviderId, Machine> machines_;
};

}  // namespace flotilla::coordinator
