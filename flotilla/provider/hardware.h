// What this machine is.
#pragma once

#include "flotilla/protocol/messages.h"

namespace flotilla::provider {

// `num_threads`: how many the engines use; 0: one per core. Memory: the machine's, or what its
// container may use. Cap: 90 % of it, and 2 GiB less than it at least.
protocol::HardwareInfo probe_hardware(std::uint32_t num_threads);
// Memory that the kernel could give out now without swapping, in bytes; 0 when unknown.
std::uint64_t available_memory_bytes();

}  // namespace flotilla::provider
