#include "flotilla/grammar/dfa.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

namespace flotilla::grammar {
namespace {

Error too_large() {
  return Error{ErrorCode::kTooLarge, "a pattern of the constraint needs more than " +
                                         std::to_string(Dfa::kMaxStates) + " states"};
}

// Joins neighbouring arcs to the same state.
void add_arc(std::vector<Dfa::Arc>& arcs, int lo, int hi, std::uint32_t target) {
  if (!arcs.empty() && arcs.back().target == target && arcs.back().hi + 1 == lo) {
    arcs.back().hi = static_cast<std::uint8_t>(hi);
  } else {
    arcs.push_back({static_cast<std::uint8_t>(lo), static_cast<std::uint8_t>(hi), target});
  }
}

// Drops states from which nothing is accepted.
Dfa trim(Dfa dfa) {
  const std::size_t n = dfa.arcs.size();
  std::vector<std::vector<std::uint32_t>> sources(n);
  for (std::uint32_t s = 0; s < n; ++s) {
    for (const Dfa::Arc& arc : dfa.arcs[s]) sources[arc.target].push_back(s);
  }
  std::vector<std::uint8_t> live(dfa.accepts);
  std::vector<std::uint32_t> todo;
  for (std::uint32_t s = 0; s < n; ++s) {
    if (live[s] != 0) todo.push_back(s);
  }
  while (!todo.empty()) {
    const std::uint32_t s = todo.back();
    todo.pop_back();
    for (const std::uint32_t source : sources[s]) {
      if (live[source] == 0) {
        live[source] = 1;
        todo.push_back(source);
      }
    }
  }
  live[0] = 1;
  std::vector<std::uint32_t> number(n, 0);
  Dfa out;
  for (std::uint32_t s = 0; s < n; ++s) {
    if (live[s] == 0) continue;
    number[s] = static_cast<std::uint32_t>(out.arcs.size());
    out.arcs.push_back(std::move(dfa.arcs[s]));
    out.accepts.push_back(dfa.accepts[s]);
  }
  for (auto& arcs : out.arcs) {
    std::erase_if(arcs, [&](const Dfa::Arc& arc) { return live[arc.target] == 0; });
    for (Dfa::Arc& arc : arcs) arc.target = number[arc.target];
  }
  return out;
}

}  // namespace

Result<Dfa> Dfa::from(const AutomatonBuilder& builder, StateId start, StateId end) {
  if (builder.overflowed()) return too_large();
  const std::size_t n = builder.num_states();
  std::vector<std::uint32_t> first(n + 1, 0);
  for (const auto& e : builder.edges()) ++first[e.from + 1];
  for (std::size_t i = 0; i < n; ++i) first[i + 1] += first[i];
  std::vector<Edge> edges(builder.edges().size());
  std::vector<std::uint32_t> fill(first.begin(), first.end() - 1);
  for (const auto& e : builder.edges()) edges[fill[e.from]++] = e.edge;

  std::vector<std::uint32_t> mark(n, 0);
  std::uint32_t round = 0;
  const auto close = [&](std::vector<StateId> todo) {
    ++round;
    std::vector<StateId> set;
    while (!todo.empty()) {
      const StateId s = todo.back();
      todo.pop_back();
      if (mark[s] == round) continue;
      mark[s] = round;
      bool reads = s == end;
      for (std::uint32_t e = first[s]; e < first[s + 1]; ++e) {
        if (edges[e].kind == Edge::Kind::kEmpty) {
          todo.push_back(edges[e].target);
        } else {
          reads = true;
        }
      }
      if (reads) set.push_back(s);
    }
    std::sort(set.begin(), set.end());
    return set;
  };

  Dfa out;
  std::map<std::vector<StateId>, std::uint32_t> numbers;
  std::vector<std::vector<StateId>> sets;
  std::size_t work = 0;  // places over all states: bounds the time
  const auto number_of = [&](std::vector<StateId> set) {
    work += set.size();
    const auto [it, fresh] = numbers.emplace(set, static_cast<std::uint32_t>(sets.size()));
    if (fresh) {
      out.accepts.push_back(std::binary_search(set.begin(), set.end(), end) ? 1 : 0);
      sets.push_back(std::move(set));
    }
    return it->second;
  };
  number_of(close({start}));
  for (std::uint32_t s = 0; s < sets.size(); ++s) {
    if (sets.size() > kMaxStates || work > 4'000'000) return too_large();
    std::array<std::uint8_t, 257> begins{};
    for (const StateId state : sets[s]) {
      for (std::uint32_t e = first[state]; e < first[state + 1]; ++e) {
        if (edges[e].kind != Edge::Kind::kByte) continue;
        begins[edges[e].lo] = 1;
        begins[std::size_t{edges[e].hi} + 1] = 1;
      }
    }
    std::vector<Arc> arcs;
    for (int lo = 0; lo < 256;) {
      int hi = lo;
      while (hi < 255 && begins[static_cast<std::size_t>(hi) + 1] == 0) ++hi;
      std::vector<StateId> targets;
      for (const StateId state : sets[s]) {
        for (std::uint32_t e = first[state]; e < first[state + 1]; ++e) {
          if (edges[e].kind == Edge::Kind::kByte && edges[e].lo <= lo && lo <= edges[e].hi) {
            targets.push_back(edges[e].target);
          }
        }
      }
      if (!targets.empty()) add_arc(arcs, lo, hi, number_of(close(std::move(targets))));
      lo = hi + 1;
    }
    out.arcs.push_back(std::move(arcs));
  }
  return trim(std::move(out));
}

bool Dfa::matches(std::string_view text) const {
  std::uint32_t s = 0;
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    const auto arc = std::find_if(arcs[s].begin(), arcs[s].end(),
                                  [byte](const Arc& a) { return a.lo <= byte && byte <= a.hi; });
    if (arc == arcs[s].end()) return false;
    s = arc->target;
  }
  return accepts[s] != 0;
}

void Dfa::emit(AutomatonBuilder& builder, StateId from, StateId to) const {
  std::vector<StateId> states(arcs.size());
  for (StateId& s : states) s = builder.add_state();
  builder.add_empty(from, states[0]);
  for (std::size_t s = 0; s < arcs.size() && !builder.overflowed(); ++s) {
    for (const Arc& arc : arcs[s]) builder.add_bytes(states[s], arc.lo, arc.hi, states[arc.target]);
    if (accepts[s] != 0) builder.add_empty(states[s], to);
  }
}

Result<Dfa> combine(const Dfa& a, const Dfa& b, Combination how) {
  Dfa out;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> numbers;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  const auto number_of = [&](std::uint32_t p, std::uint32_t q) {
    const auto [it, fresh] =
        numbers.emplace(std::pair(p, q), static_cast<std::uint32_t>(pairs.size()));
    if (fresh) {
      pairs.emplace_back(p, q);
      const bool second = q != kNever && b.accepts[q] != 0;
      out.accepts.push_back(a.accepts[p] != 0 && second == (how == Combination::kBoth) ? 1 : 0);
    }
    return it->second;
  };
  number_of(0, 0);
  for (std::uint32_t s = 0; s < pairs.size(); ++s) {
    if (pairs.size() > Dfa::kMaxStates) return too_large();
    const auto [p, q] = pairs[s];
    std::vector<Dfa::Arc> arcs;
    static const std::vector<Dfa::Arc> kNoArcs;
    const std::vector<Dfa::Arc>& others = q == kNever ? kNoArcs : b.arcs[q];
    std::size_t j = 0;
    for (const Dfa::Arc& arc : a.arcs[p]) {
      for (int lo = arc.lo; lo <= arc.hi;) {
        while (j < others.size() && others[j].hi < lo) ++j;
        int hi = arc.hi;
        std::uint32_t other = kNever;
        if (j < others.size() && others[j].lo <= lo) {
          hi = std::min<int>(hi, others[j].hi);
          other = others[j].target;
        } else if (j < others.size() && others[j].lo <= hi) {
          hi = others[j].lo - 1;
        }
        if (how == Combination::kFirstOnly || other != kNever) {
          add_arc(arcs, lo, hi, number_of(arc.target, other));
        }
        lo = hi + 1;
      }
    }
    out.arcs.push_back(std::move(arcs));
  }
  return trim(std::move(out));
}

Result<Dfa> with_length(const Dfa& dfa, std::uint64_t min, std::uint64_t max) {
  Dfa out;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> numbers;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> pairs;
  const std::uint64_t ceiling = max == ~std::uint64_t{0} ? min : max;  // counting stops there
  const auto number_of = [&](std::uint32_t state, std::uint64_t count) {
    const auto [it, fresh] =
        numbers.emplace(std::pair(state, count), static_cast<std::uint32_t>(pairs.size()));
    if (fresh) {
      pairs.emplace_back(state, count);
      out.accepts.push_back(dfa.accepts[state] != 0 && count >= min ? 1 : 0);
    }
    return it->second;
  };
  number_of(0, 0);
  for (std::uint32_t s = 0; s < pairs.size(); ++s) {
    if (pairs.size() > Dfa::kMaxStates) return too_large();
    const auto [state, count] = pairs[s];
    std::vector<Dfa::Arc> arcs;
    // Every byte but those that continue a character counts.
    for (const Dfa::Arc& arc : dfa.arcs[state]) {
      for (const auto& [lo, hi, counts] :
           {std::tuple(0x00, 0x7f, true), std::tuple(0x80, 0xbf, false),
            std::tuple(0xc0, 0xff, true)}) {
        const int from = std::max<int>(lo, arc.lo), to = std::min<int>(hi, arc.hi);
        if (from > to) continue;
        std::uint64_t after = count;
        if (counts) {
          if (max != ~std::uint64_t{0} && count >= max) continue;
          after = std::min(count + 1, ceiling);
        }
        add_arc(arcs, from, to, number_of(arc.target, after));
      }
    }
    out.arcs.push_back(std::move(arcs));
  }
  return trim(std::move(out));
}

Dfa any_text() {
  AutomatonBuilder builder;
  const StateId start = builder.add_state();
  builder.add_code_points(start, 0, 0x10ffff, start);
  return *Dfa::from(builder, start, start);
}

}  // namespace flotilla::grammar
