#include "flotilla/gates/reason.h"

namespace flotilla::gates {

std::string_view to_string(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "none";
    case Reason::kModelNotServed:
      return "model_not_served";
    case Reason::kOtherVersion:
      return "other_version";
    case Reason::kAlreadyTried:
      return "already_tried";
    case Reason::kOtherWeights:
      return "other_weights";
    case Reason::kCooldown:
      return "cooldown";
    case Reason::kSilent:
      return "silent";
    case Reason::kDraining:
      return "draining";
    case Reason::kEngineUnhealthy:
      return "engine_unhealthy";
    case Reason::kEngineStuck:
      return "engine_stuck";
    case Reason::kTooLarge:
      return "too_large";
    case Reason::kTooLong:
      return "too_long";
    case Reason::kRefusedLately:
      return "refused_lately";
    case Reason::kNoSlot:
      return "no_slot";
    case Reason::kNoStateMemory:
      return "no_state_memory";
    case Reason::kLoading:
      return "loading";
    case Reason::kNoRoomToLoad:
      return "no_room_to_load";
    case Reason::kNotLoaded:
      return "not_loaded";
  }
  return "?";
}

bool is_permanent(Reason reason) {
  return reason == Reason::kTooLarge || reason == Reason::kTooLong ||
         reason == Reason::kModelNotServed;
}

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::kOff:
      return "off";
    case Mode::kShadow:
      return "shadow";
    case Mode::kOn:
      return "on";
  }
  return "?";
}

}  // namespace flotilla::gates
