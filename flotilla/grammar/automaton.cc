#include "flotilla/grammar/automaton.h"

#include <algorithm>
#include <array>
#include <deque>

#include "flotilla/base/text.h"

namespace flotilla::grammar {

StateId AutomatonBuilder::add_state() {
  if (ends_rule_.size() >= kMaxStates) {
    overflowed_ = true;
    return 0;
  }
  ends_rule_.push_back(0);
  family_.emplace_back(kNever, 0);
  return static_cast<StateId>(ends_rule_.size() - 1);
}

void AutomatonBuilder::add(Edge edge, StateId from) {
  if (edges_.size() >= kMaxEdges) overflowed_ = true;
  if (overflowed_) return;
  edges_.push_back({from, edge});
}

void AutomatonBuilder::add_literal(StateId from, std::string_view text, StateId to) {
  if (text.empty()) return add_empty(from, to);
  for (std::size_t i = 0; i + 1 < text.size() && !overflowed_; ++i) {
    const StateId next = add_state();
    add_byte(from, text[i], next);
    from = next;
  }
  add_byte(from, text.back(), to);
}

namespace {

std::string utf8(char32_t c) {
  std::string out;
  append_utf8(out, c);
  return out;
}

// Cuts [first, last], both of the same UTF-8 length, into runs in which every byte is a range.
void split_range(AutomatonBuilder& b, StateId from, char32_t first, char32_t last, StateId to) {
  const std::string low = utf8(first), high = utf8(last);
  const std::size_t n = low.size();
  for (std::size_t i = 1; i < n; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) break;
    if ((first & mask) != 0) {
      split_range(b, from, first, first | mask, to);
      return split_range(b, from, (first | mask) + 1, last, to);
    }
    if ((last & mask) != mask) {
      split_range(b, from, first, (last & ~mask) - 1, to);
      return split_range(b, from, last & ~mask, last, to);
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    const StateId next = i + 1 == n ? to : b.add_state();
    b.add_bytes(from, static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i]), next);
    from = next;
  }
}

}  // namespace

void AutomatonBuilder::add_code_points(StateId from, char32_t first, char32_t last, StateId to) {
  struct Block {
    char32_t first, last;
  };
  // One block per length of the UTF-8 form; the gap is the surrogates'.
  static constexpr std::array<Block, 5> kBlocks = {
      {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}}};
  for (const Block& block : kBlocks) {
    const char32_t lo = std::max(first, block.first), hi = std::min(last, block.last);
    if (lo <= hi) split_range(*this, from, lo, hi, to);
  }
}

RuleId AutomatonBuilder::add_rule(StateId start) {
  rule_start_.push_back(start);
  return static_cast<RuleId>(rule_start_.size() - 1);
}

void AutomatonBuilder::set_family(StateId state, std::uint32_t family, std::uint32_t level) {
  family_[state] = {family, level};
}

void compute_distances(Automaton& a, std::span<const Jump> jumps) {
  const std::size_t n = a.num_states();
  a.distance.assign(n, kNever);
  // Who may improve when a state does: states with an edge to it, and the callers of a rule that
  // starts there.
  std::vector<std::uint32_t> first(n + 1, 0);
  std::vector<StateId> sources;
  const auto for_each_dependency = [&](auto visit) {
    for (StateId s = 0; s < n; ++s) {
      for (std::uint32_t e = a.first_edge[s]; e < a.first_edge[s + 1]; ++e) {
        const Edge& edge = a.edges[e];
        visit(edge.target, s);
        if (edge.kind == Edge::Kind::kCall) visit(a.rule_start[edge.argument], s);
      }
    }
    for (const Jump& jump : jumps) visit(jump.to, jump.from);
  };
  std::vector<StateId> jump_of(n, kNever);  // chains have one way on
  for (const Jump& jump : jumps) jump_of[jump.from] = jump.to;
  for_each_dependency([&](StateId on, StateId) { ++first[on + 1]; });
  for (std::size_t i = 0; i < n; ++i) first[i + 1] += first[i];
  sources.resize(first[n]);
  std::vector<std::uint32_t> fill(first.begin(), first.end() - 1);
  for_each_dependency([&](StateId on, StateId source) { sources[fill[on]++] = source; });

  std::deque<StateId> queue;
  std::vector<std::uint8_t> queued(n, 0);
  for (StateId s = 0; s < n; ++s) {
    if (a.ends_rule[s] != 0) {
      a.distance[s] = 0;
      queue.push_back(s);
      queued[s] = 1;
    }
  }
  while (!queue.empty()) {
    const StateId changed = queue.front();
    queue.pop_front();
    queued[changed] = 0;
    for (std::uint32_t i = first[changed]; i < first[changed + 1]; ++i) {
      const StateId s = sources[i];
      std::uint32_t best = a.distance[s];
      if (jump_of[s] != kNever && a.distance[jump_of[s]] != kNever) {
        best = std::min(best, a.distance[jump_of[s]] + 1);
      }
      for (std::uint32_t e = a.first_edge[s]; e < a.first_edge[s + 1]; ++e) {
        const Edge& edge = a.edges[e];
        std::uint64_t cost = a.distance[edge.target];
        if (cost == kNever) continue;
        if (edge.kind == Edge::Kind::kCall) {
          if (a.distance[a.rule_start[edge.argument]] == kNever) continue;
          cost += a.distance[a.rule_start[edge.argument]];
        } else if (edge.kind != Edge::Kind::kEmpty) {
          cost += 1;
        }
        best = static_cast<std::uint32_t>(std::min<std::uint64_t>({best, cost, kNever - 1}));
      }
      if (best < a.distance[s]) {
        a.distance[s] = best;
        if (queued[s] == 0) {
          queue.push_back(s);
          queued[s] = 1;
        }
      }
    }
  }
}

namespace {

// A rule that can call itself before it has read anything would never end.
bool has_left_recursion(const Automaton& a) {
  const std::size_t n = a.num_states();
  enum : std::uint8_t { kNew, kOpen, kDone };
  std::vector<std::uint8_t> mark(n, kNew);
  // Edges that read nothing: empty ones, from a caller into its rule, and past a rule that may be
  // empty. A cycle through the second kind is left recursion.
  struct Visit {
    StateId state;
    std::uint32_t edge;
    bool past;  // the rule of a call was entered, next is what follows it
    bool by_call;
  };
  std::vector<Visit> path;
  for (StateId root = 0; root < n; ++root) {
    if (mark[root] != kNew) continue;
    path.push_back({root, a.first_edge[root], false, false});
    mark[root] = kOpen;
    while (!path.empty()) {
      Visit& at = path.back();
      if (at.edge == a.first_edge[at.state + 1]) {
        mark[at.state] = kDone;
        path.pop_back();
        continue;
      }
      const Edge& edge = a.edges[at.edge];
      StateId to = 0;
      bool by_call = false;
      if (edge.kind == Edge::Kind::kEmpty) {
        to = edge.target;
        ++at.edge;
      } else if (edge.kind == Edge::Kind::kCall && !at.past) {
        to = a.rule_start[edge.argument];
        by_call = true;
        at.past = true;
      } else if (edge.kind == Edge::Kind::kCall) {
        at.past = false;
        ++at.edge;
        if (a.distance[a.rule_start[edge.argument]] != 0) continue;
        to = edge.target;
      } else {
        ++at.edge;
        continue;
      }
      if (mark[to] == kOpen) {
        bool calls = by_call;
        for (std::size_t i = path.size(); i-- > 0 && path[i].state != to;) {
          calls = calls || path[i].by_call;
        }
        if (calls) return true;
      } else if (mark[to] == kNew) {
        mark[to] = kOpen;
        path.push_back({to, a.first_edge[to], false, by_call});
      }
    }
  }
  return false;
}

}  // namespace

Result<Automaton> AutomatonBuilder::finish(StateId start) {
  if (overflowed_) {
    return Error{ErrorCode::kTooLarge, "the constraint needs more than " +
                                           std::to_string(kMaxStates) + " states or " +
                                           std::to_string(kMaxEdges) + " transitions"};
  }
  Automaton a;
  a.start = start;
  a.ends_rule = ends_rule_;
  a.rule_start = rule_start_;
  const std::size_t n = ends_rule_.size();
  a.first_edge.assign(n + 1, 0);
  for (const PlacedEdge& e : edges_) ++a.first_edge[e.from + 1];
  for (std::size_t i = 0; i < n; ++i) a.first_edge[i + 1] += a.first_edge[i];
  a.edges.resize(edges_.size());
  std::vector<std::uint32_t> fill(a.first_edge.begin(), a.first_edge.end() - 1);
  for (const PlacedEdge& e : edges_) a.edges[fill[e.from]++] = e.edge;
  a.family_far_state.resize(num_families_);
  a.family.resize(n);
  a.level.resize(n);
  std::vector<std::uint32_t> highest(num_families_, 0);
  for (StateId s = 0; s < n; ++s) {
    a.family[s] = family_[s].first;
    a.level[s] = family_[s].second;
    if (a.family[s] != kNever && a.level[s] >= highest[a.family[s]]) {
      highest[a.family[s]] = a.level[s];
      a.family_far_state[a.family[s]] = s;
    }
  }
  compute_distances(a, {});
  if (a.distance[start] == kNever) {
    return Error{ErrorCode::kInvalidArgument, "the constraint allows no output at all"};
  }
  if (has_left_recursion(a)) {
    return Error{ErrorCode::kInvalidArgument,
                 "the constraint is left-recursive: a rule can begin with itself"};
  }
  return a;
}

}  // namespace flotilla::grammar
