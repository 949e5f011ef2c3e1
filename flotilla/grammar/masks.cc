#include "flotilla/grammar/masks.h"

#include <algorithm>
#include <array>

namespace flotilla::grammar {

namespace {

// Lists longer than this cost more than going over the words.
std::size_t list_limit(std::size_t num_words) { return std::max<std::size_t>(64, num_words / 2); }

void set_bit(std::span<std::uint32_t> mask, TokenId id) {
  mask[static_cast<std::size_t>(id) / 32] |= 1u << (static_cast<std::uint32_t>(id) % 32);
}

void add_words(std::span<std::uint32_t> mask, std::span<const std::uint32_t> words) {
  for (std::size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
}

using Levels = std::array<ConfigId, Vocabulary::kMaxTokenBytes + 1>;

}  // namespace

const Masks::Own& Masks::of(ConfigId config) {
  const auto it = own_.find(config);
  if (it != own_.end()) return *it->second;
  auto made = std::make_unique<Own>();
  Own& own = *made;
  own_.emplace(config, std::move(made));
  bytes_ += sizeof(Own) + 64;

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
    own.max_distance = own.family->max_distance;
    return own;
  }

  ++num_walks_;
  const auto trie = vocabulary_.trie();
  std::vector<TokenId> tokens;
  Levels levels;
  levels[0] = config;
  for (std::uint32_t i = 1; i < trie.size();) {
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
      }
      own.max_distance = std::max(own.max_distance, configs_.distance(here));
    }
    if (configs_.escaped(here) && node.end > i + 1) own.escapes.push_back(i);
    i = configs_.has_places(here) ? i + 1 : node.end;
  }
  if (tokens.size() > list_limit(vocabulary_.num_words())) {
    own.words.assign(vocabulary_.num_words(), 0);
    for (const TokenId id : tokens) set_bit(own.words, id);
  } else {
    own.tokens = std::move(tokens);
    own.tokens.shrink_to_fit();
  }
  bytes_ += (own.words.size() + own.tokens.size() + own.escapes.capacity()) * 4;
  return own;
}

Masks::Family& Masks::family(std::uint32_t id) {
  const auto it = families_.find(id);
  if (it != families_.end()) return *it->second;
  Family& out = *families_.emplace(id, std::make_unique<Family>()).first->second;
  ++num_walks_;
  const StateId far_state = automaton_.family_far_state[id];
  const std::uint32_t highest = automaton_.level[far_state];
  const auto trie = vocabulary_.trie();
  Levels levels;
  Levels used;
  levels[0] = configs_.of_states({&far_state, 1});
  used[0] = 0;
  for (std::uint32_t i = 1; i < trie.size();) {
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
      }
      out.max_distance = std::max(out.max_distance, configs_.distance(here));
    }
    if (configs_.escaped(here) && node.end > i + 1) out.escapes.emplace_back(used[node.depth], i);
    i = configs_.has_places(here) ? i + 1 : node.end;
  }
  std::sort(out.tokens.begin(), out.tokens.end());
  std::sort(out.escapes.begin(), out.escapes.end());
  bytes_ += (out.tokens.capacity() + out.escapes.capacity()) * 8;
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

void Masks::add(ConfigId config, std::span<const StackNode> stacks, std::uint32_t stack,
                std::uint64_t budget, std::span<std::uint32_t> mask) {
  const Own& own = of(config);
  const std::uint64_t below = stacks[stack].distance;
  for (const auto& [id, distance] : own.controls) {
    if (distance != kNever && distance + below <= budget) set_bit(mask, id);
  }
  if (own.max_distance + below > budget) return walk(0, config, stacks, stack, budget, mask);
  if (own.family != nullptr) {
    Family& family = *own.family;
    if (family.tokens.size() > list_limit(vocabulary_.num_words())) {
      add_words(mask, dense_of(family, own.level));
    } else {
      for (const auto& [used, id] : family.tokens) {
        if (used > own.level) break;
        set_bit(mask, id);
      }
    }
    for (const auto& [used, node] : family.escapes) {
      if (used > own.level) break;
      leave(node, stacks, stack, budget, mask);
    }
    return;
  }
  if (!own.words.empty()) {
    add_words(mask, own.words);
  } else {
    for (const TokenId id : own.tokens) set_bit(mask, id);
  }
  for (const std::uint32_t node : own.escapes) leave(node, stacks, stack, budget, mask);
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
