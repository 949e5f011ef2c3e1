#include "flotilla/grammar/configs.h"

#include <algorithm>
#include <bitset>

namespace flotilla::grammar {

Configs::Configs(const Automaton& automaton) : automaton_(automaton) {
  // Bytes that no edge tells apart form a class.
  std::bitset<257> begins;
  begins[0] = true;
  for (const Edge& edge : automaton.edges) {
    if (edge.kind != Edge::Kind::kByte) continue;
    begins[edge.lo] = true;
    begins[std::size_t{edge.hi} + 1] = true;
  }
  for (std::size_t b = 0; b < 256; ++b) {
    if (begins[b]) {
      ++num_classes_;
      byte_of_class_.push_back(static_cast<std::uint8_t>(b));
    }
    class_of_[b] = static_cast<std::uint8_t>(num_classes_ - 1);
  }
  clear();
}

void Configs::clear() {
  transitions_.clear();
  flags_.clear();
  first_place_.clear();
  num_places_.clear();
  distance_.clear();
  all_places_.clear();
  by_hash_.clear();
  frames_.assign(1, {0, 0, 0});
  frame_of_.clear();
  entries_.clear();
  parts_.clear();
  bytes_ = 0;
  exploded_ = false;
  found_.clear();
  intern(found_, false);  // kDeadConfig
  std::fill(transitions_.begin(), transitions_.end(), kDeadConfig);
}

std::uint32_t Configs::push(StateId return_to, std::uint32_t below) {
  const std::uint64_t key = (std::uint64_t{below} << 32) | return_to;
  const auto [it, fresh] = frame_of_.emplace(key, static_cast<std::uint32_t>(frames_.size()));
  if (fresh) {
    const std::uint64_t distance =
        std::uint64_t{automaton_.distance[return_to]} + frames_[below].distance;
    frames_.push_back({return_to, below,
                       static_cast<std::uint32_t>(std::min<std::uint64_t>(distance, kNever - 1))});
    bytes_ += 64;
  }
  return it->second;
}

ConfigId Configs::close_seeds() {
  found_.clear();
  visited_.clear();
  bool escaped = false;
  const auto visit = [this](StateId state, std::uint32_t stack) {
    if (automaton_.distance[state] == kNever) return;  // leads nowhere
    if (visited_.size() > kMaxPlaces) {
      exploded_ = true;
      return;
    }
    if (visited_.emplace((std::uint64_t{stack} << 32) | state, 1).second) {
      seeds_.push_back({state, stack});
    }
  };
  std::vector<Place> first;
  first.swap(seeds_);
  for (const Place& place : first) visit(place.state, place.stack);
  first.clear();
  while (!seeds_.empty()) {
    const Place place = seeds_.back();
    seeds_.pop_back();
    bool reads = false;
    for (std::uint32_t e = automaton_.first_edge[place.state];
         e < automaton_.first_edge[place.state + 1]; ++e) {
      const Edge& edge = automaton_.edges[e];
      if (automaton_.distance[edge.target] == kNever) continue;
      switch (edge.kind) {
        case Edge::Kind::kEmpty:
          visit(edge.target, place.stack);
          break;
        case Edge::Kind::kCall: {
          const StateId start = automaton_.rule_start[edge.argument];
          if (automaton_.distance[start] == kNever) break;
          // A call with nothing after it needs no frame: long lists stay flat.
          visit(start, is_plain_end(edge.target) ? place.stack : push(edge.target, place.stack));
          break;
        }
        case Edge::Kind::kByte:
        case Edge::Kind::kControl:
          reads = true;
          break;
      }
    }
    if (reads) found_.push_back(place);
    if (automaton_.ends_rule[place.state] != 0) {
      if (place.stack == 0) {
        escaped = true;
      } else {
        visit(frames_[place.stack].return_to, frames_[place.stack].below);
      }
    }
  }
  return intern(found_, escaped);
}

ConfigId Configs::intern(std::vector<Place>& found, bool escaped) {
  std::sort(found.begin(), found.end());
  std::uint64_t hash = escaped ? 0x9e3779b97f4a7c15ull : 0;
  for (const Place& place : found) {
    hash = (hash ^ ((std::uint64_t{place.stack} << 32) | place.state)) * 0x9ddfea08eb382d69ull;
    hash ^= hash >> 29;
  }
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const auto there = places(it->second);
    if (escaped == (flags_[it->second] != 0) &&
        std::equal(there.begin(), there.end(), found.begin(), found.end())) {
      return it->second;
    }
  }
  const auto id = static_cast<ConfigId>(flags_.size());
  std::uint32_t distance = escaped ? 0 : kNever;
  for (const Place& place : found) {
    const std::uint64_t here =
        std::uint64_t{automaton_.distance[place.state]} + frames_[place.stack].distance;
    distance = static_cast<std::uint32_t>(std::min<std::uint64_t>({distance, here, kNever - 1}));
  }
  flags_.push_back(escaped ? 1 : 0);
  distance_.push_back(distance);
  first_place_.push_back(static_cast<std::uint32_t>(all_places_.size()));
  num_places_.push_back(static_cast<std::uint32_t>(found.size()));
  all_places_.insert(all_places_.end(), found.begin(), found.end());
  transitions_.resize(transitions_.size() + num_classes_, kNever);
  by_hash_.emplace(hash, id);
  bytes_ += num_classes_ * 4 + found.size() * sizeof(Place) + 96;
  return id;
}

ConfigId Configs::step(ConfigId from, std::uint32_t byte_class, std::uint32_t at) {
  const std::uint8_t byte = byte_of_class_[byte_class];
  seeds_.clear();
  for (const Place& place : places(from)) {
    for (std::uint32_t e = automaton_.first_edge[place.state];
         e < automaton_.first_edge[place.state + 1]; ++e) {
      const Edge& edge = automaton_.edges[e];
      if (edge.kind == Edge::Kind::kByte && edge.lo <= byte && byte <= edge.hi) {
        seeds_.push_back({edge.target, place.stack});
      }
    }
  }
  if (bytes_ > kMaxBytes) {
    exploded_ = true;
    return kDeadConfig;
  }
  const ConfigId to = seeds_.empty() ? kDeadConfig : close_seeds();
  transitions_[at] = to;
  return to;
}

ConfigId Configs::entry(StateId state) {
  const auto it = entries_.find(state);
  if (it != entries_.end()) return it->second;
  seeds_.assign(1, {state, 0});
  const ConfigId id = close_seeds();
  entries_.emplace(state, id);
  return id;
}

ConfigId Configs::after_control(ConfigId from, TokenId token) {
  seeds_.clear();
  for (const Place& place : places(from)) {
    for (std::uint32_t e = automaton_.first_edge[place.state];
         e < automaton_.first_edge[place.state + 1]; ++e) {
      const Edge& edge = automaton_.edges[e];
      if (edge.kind == Edge::Kind::kControl && edge.argument == static_cast<std::uint32_t>(token)) {
        seeds_.push_back({edge.target, place.stack});
      }
    }
  }
  return seeds_.empty() ? kDeadConfig : close_seeds();
}

void Configs::control_tokens(ConfigId from, std::vector<TokenId>& out) const {
  for (const Place& place : places(from)) {
    for (std::uint32_t e = automaton_.first_edge[place.state];
         e < automaton_.first_edge[place.state + 1]; ++e) {
      const Edge& edge = automaton_.edges[e];
      if (edge.kind == Edge::Kind::kControl && automaton_.distance[edge.target] != kNever) {
        out.push_back(static_cast<TokenId>(edge.argument));
      }
    }
  }
}

std::span<const Configs::Part> Configs::parts(ConfigId id) {
  const auto it = parts_.find(id);
  if (it != parts_.end()) return it->second;
  // Sorted by stack: places of one part are gathered.
  std::vector<Place> sorted(places(id).begin(), places(id).end());
  std::sort(sorted.begin(), sorted.end(), [](const Place& a, const Place& b) {
    return a.stack != b.stack ? a.stack < b.stack : a.state < b.state;
  });
  std::vector<Part> out;
  for (std::size_t i = 0; i < sorted.size();) {
    const std::uint32_t stack = sorted[i].stack;
    std::vector<Place> plain;
    for (; i < sorted.size() && sorted[i].stack == stack; ++i)
      plain.push_back({sorted[i].state, 0});
    Part part;
    for (std::uint32_t f = stack; f != 0; f = frames_[f].below) {
      part.returns.push_back(frames_[f].return_to);
    }
    std::reverse(part.returns.begin(), part.returns.end());
    part.states = intern(plain, false);
    out.push_back(std::move(part));
  }
  bytes_ += 128 + out.size() * sizeof(Part);
  return parts_.emplace(id, std::move(out)).first->second;
}

ConfigId Configs::join(ConfigId a, ConfigId b) {
  std::vector<Place> all(places(a).begin(), places(a).end());
  all.insert(all.end(), places(b).begin(), places(b).end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return intern(all, false);
}

std::vector<StateId> Configs::states(ConfigId id) const {
  std::vector<StateId> out;
  for (const Place& place : places(id)) out.push_back(place.state);
  return out;
}

ConfigId Configs::of_states(std::span<const StateId> states) {
  std::vector<Place> all;
  for (const StateId state : states) all.push_back({state, 0});
  return intern(all, false);
}

}  // namespace flotilla::grammar
