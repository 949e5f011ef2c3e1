// Why a node does not get a job: a closed list in the order in which it is asked. A node that is
// not chosen has exactly one reason, the first that holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace flotilla::gates {

enum class Reason : std::uint8_t {
  kNone,  // it may have it
  // Of this job.
  kModelNotServed,
  kOtherVersion,  // its files are not those of the version that is active
  kAlreadyTried,  // it failed on this node
  kOtherWeights,  // an answer that has begun goes on with the same weights only
  // Of the machine. What it did wrong counts before what it is.
  kCooldown,  // after several faults in a row
  kSilent,
  kDraining,
  // Of the engine.
  kEngineUnhealthy,
  kEngineStuck,
  // For good: no waiting helps.
  kTooLarge,  // the model, for this machine
  kTooLong,   // the sequence, for what this machine can ever give it
  // For now.
  kRefusedLately,
  kNoSlot,
  kNoStateMemory,
  kLoading,
  kNoRoomToLoad,
  kNotLoaded,  // it could be
};
inline constexpr std::size_t kNumReasons = 18;

// "too_large"
std::string_view to_string(Reason reason);
// Waiting does not change it.
bool is_permanent(Reason reason);

// How many nodes have each reason; those with kNone are the candidates.
using ReasonCounts = std::array<std::uint32_t, kNumReasons>;
inline std::uint32_t& count_of(ReasonCounts& counts, Reason reason) {
  return counts[static_cast<std::size_t>(reason)];
}
inline std::uint32_t count_of(const ReasonCounts& counts, Reason reason) {
  return counts[static_cast<std::size_t>(reason)];
}

// What a gate does: nothing, count what it would refuse, or refuse.
enum class Mode : std::uint8_t { kOff, kShadow, kOn };
std::string_view to_string(Mode mode);

// The gates that can be switched: those that compare memory. The others state facts.
struct Modes {
  Mode hardware = Mode::kShadow;  // kTooLarge
  Mode load = Mode::kShadow;      // kNoRoomToLoad
  Mode state = Mode::kShadow;     // kTooLong, kNoStateMemory
};

}  // namespace flotilla::gates
