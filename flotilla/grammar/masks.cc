#include "flotilla/grammar/masks.h"

#include <algorithm>
#include <array>

namespace flotilla::grammar {

namespace {

// Lists longer than this cost more than going over the words.
std::size_t list_limit(std::size_t num_words) { return std::max<std::size_t>(64, num_words / 2); }

constexpr std::size_t kMaxBases = 8;

void set_bit(std::span<std::uint32_t> mask, TokenId id) {
  mask[static_cast<std::size_t>(id) / 32] |= 1u << (static_cast<std::uint32_t>(id) % 32);
}

void add_words(std::span<std::uint32_t> mask, std::span<const std::uint32_t> words) {
  for (std::size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
}

// Stable, in linear time: levels are no more than bytes of a token.
void sort_by_level(std::vector<std::pair<std::uint32_t, TokenId>>& tokens) {
  std::array<std::size_t, Vocabulary::kMaxTokenBytes + 2> begin{};
  for (const auto& token : tokens) ++begin[token.first + 1];
  for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  std::vector<std::pair<std::uint32_t, TokenId>> sorted(tokens.size());
  for (const auto& token : tokens) sorted[begin[token.first]++] = token;
  tokens = std::move(sorted);
}

using Levels = std::array<ConfigId, Vocabulary::kMaxTokenBytes + 1>;

}  // namespace

const Masks::Own& Masks::of(ConfigId config) {
  const auto it = own_.find(config);
  if (it != own_.end()) return *it->second;
  auto made = std::make_unique<Own>();
  fill(*made, config);
  bytes_ += sizeof(Own) + 64;
  return *own_.emplace(config, std::move(made)).first->second;
}

void Masks::fill(Own& own, ConfigId config) {
  std::vector<TokenId> controls;
  configs_.control_tokens(config, controls);
  std::sort(controls.begin(), controls.end());
  controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
  for (const TokenId id : controls) {
    own.controls.emplace_back(id, configs_.distance(configs_.after_control(config, id)));
  }

  if (const auto states = configs_.states(config);
      states.size() == 1 && automaton_.family[states[0]] != kNever) {
    own.family = &family(automaton_.family[states[0]]);
    own.level = automaton_.level[states[0]];
    return;
  }

  ConfigId base = kDeadConfig;
  if (const Own* base_own = find_base(config, base)) {
    walk_difference(own, config, *base_own, base);
  } else {
    walk_all(own, config);
    if (!own.words.empty()) {
      if (bases_.size() == kMaxBases) bases_.erase(bases_.begin());
      bases_.push_back(config);
    }
  }
  bytes_ += (own.words.size() + own.tokens.size() + own.escapes.capacity()) * 4;
}

void Masks::walk_all(Own& own, ConfigId config) {
  ++num_walks_;
  const auto trie = vocabulary_.trie();
  std::vector<TokenId> tokens;
  std::vector<std::pair<std::uint32_t, TokenId>> distances;
  Levels levels;
  levels[0] = config;
  for (std::uint32_t i = 1; i < trie.size();) {
    let_others_pass();
    const TrieNode& node = trie[i];
    const ConfigId here = configs_.next(levels[node.depth - 1u], node.byte);
    if (here == kDeadConfig) {
      i = node.end;
      continue;
    }
    levels[node.depth] = here;
    if (node.num_tokens != 0) {
      for (std::uint32_t t = 0; t < node.num_tokens; ++t) {
        tokens.push_back(vocabulary_.tokens()[node.first_token + t]);
        distances.emplace_back(configs_.distance(here), tokens.back());
      }
    }
    if (configs_.escaped(here) && node.end > i + 1) own.escapes.push_back(i);
    i = configs_.has_places(here) ? i + 1 : node.end;
  }
  own.costly = costly_of(std::move(distances));
  if (tokens.size() > list_limit(vocabulary_.num_words())) {
    own.words.assign(vocabulary_.num_words(), 0);
    for (const TokenId id : tokens) set_bit(own.words, id);
  } else {
    own.tokens = std::move(tokens);
    own.tokens.shrink_to_fit();
  }
}

const Masks::Own* Masks::find_base(ConfigId config, ConfigId& base) const {
  const auto trie = vocabulary_.trie();
  std::size_t most = trie.size() - trie.size() / 8;
  for (const ConfigId candidate : bases_) {
    std::size_t same = 0;
    for (std::uint32_t i = 1; i < trie.size(); i = trie[i].end) {
      if (configs_.next(config, trie[i].byte) == configs_.next(candidate, trie[i].byte)) {
        same += trie[i].end - i;
      }
    }
    if (same <= most) continue;
    most = same;
    base = candidate;
  }
  return base == kDeadConfig ? nullptr : own_.at(base).get();
}

// Both are walked side by side; where they meet, the rest of the subtree is as the base has it.
void Masks::walk_difference(Own& own, ConfigId config, const Own& base_own, ConfigId base) {
  const auto trie = vocabulary_.trie();
  own.words = base_own.words;
  own.costly.common = base_own.costly.common;
  std::vector<std::uint32_t> differing, escapes;
  std::vector<std::uint32_t> changed(vocabulary_.num_words(), 0);  // one bit per token
  Levels levels, base_levels;
  levels[0] = config;
  base_levels[0] = base;
  for (std::uint32_t i = 1; i < trie.size();) {
    let_others_pass();
    const TrieNode& node = trie[i];
    const ConfigId here = configs_.next(levels[node.depth - 1u], node.byte);
    const ConfigId there = configs_.next(base_levels[node.depth - 1u], node.byte);
    if (here == there) {
      i = node.end;
      continue;
    }
    levels[node.depth] = here;
    base_levels[node.depth] = there;
    differing.push_back(i);
    for (std::uint32_t t = 0; t < node.num_tokens; ++t) {
      const auto id = static_cast<std::uint32_t>(vocabulary_.tokens()[node.first_token + t]);
      const std::uint32_t bit = 1u << (id % 32);
      std::uint32_t& word = own.words[id / 32];
      word = here != kDeadConfig ? word | bit : word & ~bit;
      changed[id / 32] |= bit;
      if (here != kDeadConfig && configs_.distance(here) > own.costly.common) {
        own.costly.tokens.emplace_back(configs_.distance(here), static_cast<TokenId>(id));
      }
    }
    if (configs_.escaped(here) && node.end > i + 1) escapes.push_back(i);
    i = configs_.has_places(here) || configs_.has_places(there) ? i + 1 : node.end;
  }
  for (const auto& entry : base_own.costly.tokens) {
    const auto id = static_cast<std::uint32_t>(entry.second);
    if ((changed[id / 32] >> (id % 32) & 1u) == 0) {
      own.costly.tokens.push_back(entry);
    }
  }
  std::sort(own.costly.tokens.rbegin(), own.costly.tokens.rend());
  // Both lists are in the order of the trie.
  std::size_t d = 0;
  for (const std::uint32_t node : base_own.escapes) {
    while (d < differing.size() && differing[d] < node) ++d;
    if (d == differing.size() || differing[d] != node) escapes.push_back(node);
  }
  own.escapes = std::move(escapes);
}

Masks::Family& Masks::family(std::uint32_t id) {
  const auto it = families_.find(id);
  if (it != families_.end()) return *it->second;
  auto made = std::make_unique<Family>();
  Family& out = *made;
  ++num_walks_;
  const StateId far_state = automaton_.family_far_state[id];
  const std::uint32_t highest = automaton_.level[far_state];
  const auto trie = vocabulary_.trie();
  std::vector<std::pair<std::uint32_t, TokenId>> distances;
  Levels levels;
  Levels used;
  levels[0] = configs_.of_states({&far_state, 1});
  used[0] = 0;
  for (std::uint32_t i = 1; i < trie.size();) {
    let_others_pass();
    const TrieNode& node = trie[i];
    const ConfigId here = configs_.next(levels[node.depth - 1u], node.byte);
    if (here == kDeadConfig) {
      i = node.end;
      continue;
    }
    levels[node.depth] = here;
    used[node.depth] = used[node.depth - 1u];
    if (configs_.has_places(here)) {
      const StateId state = configs_.first_state(here);
      if (automaton_.family[state] != kNever) used[node.depth] = highest - automaton_.level[state];
    }
    if (node.num_tokens != 0) {
      for (std::uint32_t t = 0; t < node.num_tokens; ++t) {
        out.tokens.emplace_back(used[node.depth], vocabulary_.tokens()[node.first_token + t]);
        distances.emplace_back(configs_.distance(here), out.tokens.back().second);
      }
    }
    if (configs_.escaped(here) && node.end > i + 1) out.escapes.emplace_back(used[node.depth], i);
    i = configs_.has_places(here) ? i + 1 : node.end;
  }
  out.costly = costly_of(std::move(distances));
  sort_by_level(out.tokens);
  std::sort(out.escapes.begin(), out.escapes.end());
  bytes_ += (out.tokens.capacity() + out.escapes.capacity()) * 8;
  return *families_.emplace(id, std::move(made)).first->second;
}

Masks::Costly Masks::costly_of(std::vector<std::pair<std::uint32_t, TokenId>> distances) {
  constexpr std::size_t kMaxCostly = 4096, kMaxDistance = 255;
  std::array<std::size_t, kMaxDistance + 1> counts{};  // the last one: of that and more
  for (const auto& entry : distances) ++counts[std::min<std::size_t>(entry.first, kMaxDistance)];
  Costly out;
  std::size_t above = 0;
  std::size_t common = kMaxDistance + 1;
  while (common > 0 && above + counts[common - 1] <= kMaxCostly) above += counts[--common];
  // All tokens fit when `common` came down to 0; else those above common - 1.
  if (common == kMaxDistance + 1) {
    for (const auto& entry : distances) out.common = std::max(out.common, entry.first);
    return out;
  }
  out.common = common == 0 ? 0 : static_cast<std::uint32_t>(common - 1);
  std::erase_if(distances, [&](const auto& entry) { return entry.first <= out.common; });
  std::sort(distances.rbegin(), distances.rend());
  out.tokens.assign(distances.begin(), distances.end());
  return out;
}

const std::vector<std::uint32_t>& Masks::dense_of(Family& family, std::uint32_t level) {
  // Beyond what any token uses up all levels are the same.
  const std::uint32_t most = family.tokens.empty() ? 0 : family.tokens.back().first;
  std::vector<std::uint32_t>& words = family.dense[std::min(level, most)];
  if (words.empty()) {
    words.assign(vocabulary_.num_words(), 0);
    for (const auto& [used, id] : family.tokens) {
      if (used > level) break;
      set_bit(words, id);
    }
    bytes_ += words.size() * 4;
  }
  return words;
}

bool Masks::is_quick(ConfigId config, std::span<const StackNode> stacks, std::uint32_t stack,
                     std::uint64_t budget) const {
  const auto it = own_.find(config);
  if (it == own_.end()) return false;
  const Own& own = *it->second;
  const Costly& costly = own.family != nullptr ? own.family->costly : own.costly;
  return std::uint64_t{costly.common} + stacks[stack].distance <= budget;
}

void Masks::add(ConfigId config, std::span<const StackNode> stacks, std::uint32_t stack,
                std::uint64_t budget, std::span<std::uint32_t> mask) {
  const Own& own = of(config);
  const std::uint64_t below = stacks[stack].distance;
  for (const auto& [id, distance] : own.controls) {
    if (distance != kNever && distance + below <= budget) set_bit(mask, id);
  }
  const Costly& costly = own.family != nullptr ? own.family->costly : own.costly;
  if (costly.common + below > budget) return walk(0, config, stacks, stack, budget, mask);
  if (!costly.tokens.empty() && costly.tokens.front().first + below > budget) {
    // Taken out of this configuration's share only: another may allow the token.
    share_.assign(mask.size(), 0);
    add_tokens(own, share_);
    for (const auto& [distance, id] : costly.tokens) {
      if (distance + below <= budget) break;
      share_[static_cast<std::size_t>(id) / 32] &= ~(1u << (static_cast<std::uint32_t>(id) % 32));
    }
    add_words(mask, share_);
  } else {
    add_tokens(own, mask);
  }
  if (own.family == nullptr) {
    for (const std::uint32_t node : own.escapes) leave(node, stacks, stack, budget, mask);
    return;
  }
  for (const auto& [used, node] : own.family->escapes) {
    if (used > own.level) break;
    leave(node, stacks, stack, budget, mask);
  }
}

void Masks::add_tokens(const Own& own, std::span<std::uint32_t> mask) {
  if (own.family == nullptr) {
    if (!own.words.empty()) return add_words(mask, own.words);
    for (const TokenId id : own.tokens) set_bit(mask, id);
    return;
  }
  if (own.family->tokens.size() > list_limit(vocabulary_.num_words())) {
    return add_words(mask, dense_of(*own.family, own.level));
  }
  for (const auto& [used, id] : own.family->tokens) {
    if (used > own.level) break;
    set_bit(mask, id);
  }
}

void Masks::leave(std::uint32_t node, std::span<const StackNode> stacks, std::uint32_t stack,
                  std::uint64_t budget, std::span<std::uint32_t> mask) {
  while (stack != 0) {
    const ConfigId entry = configs_.entry(stacks[stack].return_to);
    stack = stacks[stack].below;
    if (configs_.has_places(entry)) walk(node, entry, stacks, stack, budget, mask);
    if (!configs_.escaped(entry)) return;
  }
}

void Masks::walk(std::uint32_t start, ConfigId config, std::span<const StackNode> stacks,
                 std::uint32_t stack, std::uint64_t budget, std::span<std::uint32_t> mask) {
  const auto trie = vocabulary_.trie();
  const std::uint64_t below = stacks[stack].distance;
  Levels levels;
  levels[trie[start].depth] = config;
  for (std::uint32_t i = start + 1; i < trie[start].end;) {
    let_others_pass();
    const TrieNode& node = trie[i];
    const ConfigId here = configs_.next(levels[node.depth - 1u], node.byte);
    if (here == kDeadConfig) {
      i = node.end;
      continue;
    }
    levels[node.depth] = here;
    if (node.num_tokens != 0 && configs_.distance(here) + below <= budget) {
      for (std::uint32_t t = 0; t < node.num_tokens; ++t) {
        set_bit(mask, vocabulary_.tokens()[node.first_token + t]);
      }
    }
    if (configs_.escaped(here) && node.end > i + 1) leave(i, stacks, stack, budget, mask);
    i = configs_.has_places(here) ? i + 1 : node.end;
  }
}

}  // namespace flotilla::grammar
