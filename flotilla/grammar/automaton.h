// The one form that every grammar compiles into: rules over bytes and control tokens that may call
// each other (a recursive transition network, that is a pushdown automaton).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"

namespace flotilla::grammar {

using StateId = std::uint32_t;
using RuleId = std::uint32_t;

struct Edge {
  enum class Kind : std::uint8_t {
    kEmpty,    // costs nothing
    kByte,     // lo to hi
    kControl,  // the token `argument`
    kCall,     // the rule `argument`, then on at `target`
  };
  Kind kind = Kind::kEmpty;
  std::uint8_t lo = 0, hi = 0;
  StateId target = 0;
  std::uint32_t argument = 0;
};

inline constexpr std::uint32_t kNever = 0xFFFFFFFF;

// Immutable once built.
struct Automaton {
  std::vector<Edge> edges;
  std::vector<std::uint32_t> first_edge;  // per state, and one more
  std::vector<std::uint8_t> ends_rule;    // per state: its rule may end here
  std::vector<StateId> rule_start;        // per rule
  std::vector<std::uint32_t> distance;    // per state: tokens that surely suffice to end its rule
  std::vector<std::uint32_t> family;      // per state: see AutomatonBuilder::set_family; kNever
  std::vector<std::uint32_t> level;       // of the family
  std::vector<StateId> family_far_state;  // per family: the state of its highest level
  StateId start = 0;

  std::size_t num_states() const { return ends_rule.size(); }
};

// A token that leads from one state to another of the same rule.
struct Jump {
  StateId from, to;
};
// Fills `distance`: one token per byte or control token, or a jump.
void compute_distances(Automaton& automaton, std::span<const Jump> jumps);

// States and edges are added one by one; a fragment is what lies between two states.
class AutomatonBuilder {
 public:
  static constexpr std::size_t kMaxStates = 400'000;
  static constexpr std::size_t kMaxEdges = 4'000'000;

  StateId add_state();
  void add_empty(StateId from, StateId to) { add({Edge::Kind::kEmpty, 0, 0, to, 0}, from); }
  void add_bytes(StateId from, std::uint8_t lo, std::uint8_t hi, StateId to) {
    add({Edge::Kind::kByte, lo, hi, to, 0}, from);
  }
  void add_byte(StateId from, char byte, StateId to) {
    add_bytes(from, static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte), to);
  }
  void add_control(StateId from, TokenId token, StateId to) {
    add({Edge::Kind::kControl, 0, 0, to, static_cast<std::uint32_t>(token)}, from);
  }
  void add_call(StateId from, RuleId rule, StateId to) {
    add({Edge::Kind::kCall, 0, 0, to, rule}, from);
  }
  void add_literal(StateId from, std::string_view text, StateId to);
  // The code points first..last in UTF-8, less surrogates.
  void add_code_points(StateId from, char32_t first, char32_t last, StateId to);

  // A rule begins at `start`; it ends wherever mark_end() says on the states that it reaches.
  RuleId add_rule(StateId start);
  void mark_end(StateId state) { ends_rule_[state] = 1; }
  StateId rule_start(RuleId rule) const { return rule_start_[rule]; }

  // States that count down: at level k of a family at most k more of something may come, and apart
  // from that all levels are alike. Lets all levels share one walk over the vocabulary. Levels of a
  // family are set without gaps from 0.
  std::uint32_t add_family() { return num_families_++; }
  void set_family(StateId state, std::uint32_t family, std::uint32_t level);

  std::size_t num_states() const { return ends_rule_.size(); }
  // Once true, what was built is of no use; loops should stop.
  bool overflowed() const { return overflowed_; }

  // kTooLarge, and kInvalidArgument for left recursion or an empty language.
  Result<Automaton> finish(StateId start);

  struct PlacedEdge {
    StateId from;
    Edge edge;
  };
  // What was added, for turning fragments without calls into a Dfa.
  const std::vector<PlacedEdge>& edges() const { return edges_; }

 private:
  void add(Edge edge, StateId from);

  std::vector<PlacedEdge> edges_;
  std::vector<std::uint8_t> ends_rule_;
  std::vector<StateId> rule_start_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> family_;  // per state: family, level
  std::uint32_t num_families_ = 0;
  bool overflowed_ = false;
};

}  // namespace flotilla::grammar
