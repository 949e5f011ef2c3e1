// A deterministic automaton over bytes, for texts of one string: intersections, differences and
// lengths need it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/grammar/automaton.h"

namespace flotilla::grammar {

struct Dfa {
  static constexpr std::size_t kMaxStates = 30'000;

  struct Arc {
    std::uint8_t lo, hi;
    std::uint32_t target;
  };
  std::vector<std::vector<Arc>> arcs;  // per state, sorted, not overlapping; state 0 is the start
  std::vector<std::uint8_t> accepts;

  // From a fragment of a builder that has bytes and empty edges only. kTooLarge beyond kMaxStates.
  static Result<Dfa> from(const AutomatonBuilder& builder, StateId start, StateId end);

  bool matches(std::string_view text) const;
  // Adds a copy between two states of `builder`.
  void emit(AutomatonBuilder& builder, StateId from, StateId to) const;
};

enum class Combination { kBoth, kFirstOnly };
Result<Dfa> combine(const Dfa& a, const Dfa& b, Combination how);

// Texts of `dfa`, which are valid UTF-8, with min to max characters.
Result<Dfa> with_length(const Dfa& dfa, std::uint64_t min, std::uint64_t max);

// All texts in UTF-8.
Dfa any_text();

}  // namespace flotilla::grammar
