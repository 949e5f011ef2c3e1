// The automaton made deterministic as far as it is used: sets of places in it ("configurations"),
// numbered, with their transitions remembered. A place is a state and the calls that were entered
// since a base, which is not known here; where a rule ends below the base, the configuration is
// marked: the reading goes on in whoever called.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "flotilla/grammar/automaton.h"

namespace flotilla::grammar {

using ConfigId = std::uint32_t;
inline constexpr ConfigId kDeadConfig = 0;  // no places, not escaped

class Configs {
 public:
  explicit Configs(const Automaton& automaton);

  // After `byte`. Inline: walks of a whole vocabulary go through it.
  ConfigId next(ConfigId from, std::uint8_t byte) {
    const std::uint32_t at = from * num_classes_ + class_of_[byte];
    return transitions_[at] != kNever ? transitions_[at] : step(from, class_of_[byte], at);
  }
  std::uint32_t num_classes() const { return num_classes_; }
  ConfigId next_of_class(ConfigId from, std::uint32_t byte_class) {
    const std::uint32_t at = from * num_classes_ + byte_class;
    return transitions_[at] != kNever ? transitions_[at] : step(from, byte_class, at);
  }
  bool escaped(ConfigId id) const { return flags_[id] != 0; }
  bool has_places(ConfigId id) const { return num_places_[id] != 0; }
  // Fewest tokens from here to below the base; 0 when escaped, kNever when dead.
  std::uint32_t distance(ConfigId id) const { return distance_[id]; }

  // Where the caller goes on at `state`: places reached from there without reading.
  ConfigId entry(StateId state);
  // After control token `token`.
  ConfigId after_control(ConfigId from, TokenId token);
  // The control tokens that may come, without order.
  void control_tokens(ConfigId from, std::vector<TokenId>& out) const;

  // A configuration with the entered calls taken off: states under one stack of return states.
  struct Part {
    std::vector<StateId> returns;  // innermost last
    ConfigId states;               // places without calls of their own
  };
  std::span<const Part> parts(ConfigId id);
  // The union of two that have no calls of their own.
  ConfigId join(ConfigId a, ConfigId b);
  // The states of one that has no calls of its own, and back; survives clear().
  std::vector<StateId> states(ConfigId id) const;
  ConfigId of_states(std::span<const StateId> states);
  StateId first_state(ConfigId id) const { return all_places_[first_place_[id]].state; }

  // Forgets everything; all ids become invalid.
  void clear();
  std::size_t num_configs() const { return flags_.size(); }
  std::size_t memory_bytes() const { return bytes_; }
  // Set when a configuration grew past all bounds; what was computed since is not complete.
  bool exploded() const { return exploded_; }
  void set_exploded(bool exploded) { exploded_ = exploded; }

 private:
  struct Place {
    StateId state;
    std::uint32_t stack;
    auto operator<=>(const Place&) const = default;
  };
  struct Frame {
    StateId return_to;
    std::uint32_t below;
    std::uint32_t distance;  // of this and all below
  };
  static constexpr std::size_t kMaxPlaces = 20'000;
  static constexpr std::size_t kMaxBytes = std::size_t{192} << 20;  // within one walk

  ConfigId step(ConfigId from, std::uint32_t byte_class, std::uint32_t at);
  // Closes `seeds_` under everything that reads nothing, and interns the result.
  ConfigId close_seeds();
  ConfigId intern(std::vector<Place>& places, bool escaped);
  std::uint32_t push(StateId return_to, std::uint32_t below);
  bool is_plain_end(StateId state) const {
    return automaton_.ends_rule[state] != 0 &&
           automaton_.first_edge[state] == automaton_.first_edge[state + 1];
  }
  std::span<const Place> places(ConfigId id) const {
    return {all_places_.data() + first_place_[id], num_places_[id]};
  }

  const Automaton& automaton_;
  std::array<std::uint8_t, 256> class_of_{};
  std::vector<std::uint8_t> byte_of_class_;  // one member
  std::uint32_t num_classes_ = 0;

  std::vector<std::uint32_t> transitions_;  // [config, class]
  std::vector<std::uint8_t> flags_;
  std::vector<std::uint32_t> first_place_, num_places_, distance_;
  std::vector<Place> all_places_;
  std::unordered_multimap<std::uint64_t, ConfigId> by_hash_;
  std::vector<Frame> frames_;  // 0: the base
  std::unordered_map<std::uint64_t, std::uint32_t> frame_of_;
  std::unordered_map<StateId, ConfigId> entries_;
  std::unordered_map<ConfigId, std::vector<Part>> parts_;
  std::size_t bytes_ = 0;
  bool exploded_ = false;

  // Working memory of close_seeds().
  std::vector<Place> seeds_, found_;
  std::unordered_map<std::uint64_t, std::uint8_t> visited_;
};

}  // namespace flotilla::grammar
