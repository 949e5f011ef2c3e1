#include "flotilla/grammar/compiled.h"

#include <algorithm>

namespace flotilla::grammar {

CompiledGrammar::CompiledGrammar(Automaton automaton, std::shared_ptr<const Vocabulary> vocabulary)
    : automaton_(std::move(automaton)),
      vocabulary_(std::move(vocabulary)),
      configs_(automaton_),
      masks_(automaton_, configs_, *vocabulary_, mutex_) {}

std::size_t CompiledGrammar::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return automaton_.edges.capacity() * sizeof(Edge) + automaton_.num_states() * 20 +
         configs_.memory_bytes() + masks_.memory_bytes();
}

std::uint64_t CompiledGrammar::num_walks() const {
  const std::lock_guard lock(mutex_);
  return masks_.num_walks();
}

void CompiledGrammar::forget() {
  configs_.clear();
  masks_.clear();
  is_broken_ = false;
  ++epoch_;
}

Matcher::Matcher(std::shared_ptr<const CompiledGrammar> grammar)
    : grammar_(std::move(grammar)), stacks_(1) {
  CompiledGrammar& g = shared();
  const std::lock_guard lock(g.mutex_);
  epoch_ = g.epoch_;
  const ConfigId start = g.configs_.entry(g.automaton_.start);
  accepting_ = g.configs_.escaped(start);
  std::vector<Group> reached = {{start, 0}};
  settle(reached);
}

// Forgets everything when there is too much of it, and brings this matcher's ids up to date.
void Matcher::begin() const {
  CompiledGrammar& g = shared();
  const std::size_t bytes = g.configs_.memory_bytes() + g.masks_.memory_bytes();
  if ((g.is_broken_ || bytes > CompiledGrammar::kMaxCacheBytes) && !g.is_filling_) g.forget();
  if (epoch_ == g.epoch_) return;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].config = g.configs_.of_states(states_[i]);
  }
  remembered_.assign(groups_.size(), kDeadConfig);
  epoch_ = g.epoch_;
}

bool Matcher::accept(TokenId token) {
  const std::string_view bytes = grammar_->vocabulary().bytes(token);
  const std::lock_guard lock(shared().mutex_);
  return advance(bytes, token);
}

bool Matcher::accept_bytes(std::string_view bytes) {
  const std::lock_guard lock(shared().mutex_);
  return bytes.empty() || advance(bytes, -1);
}

bool Matcher::advance(std::string_view bytes, TokenId control) {
  begin();
  CompiledGrammar& g = shared();
  // Whoever fills a mask at this moment has a claim to the mark.
  const bool marked = g.configs_.exploded();
  g.configs_.set_exploded(false);
  const bool fits = read_on(bytes, control);
  if (g.configs_.exploded()) exploded_ = g.is_broken_ = true;
  g.configs_.set_exploded(marked);
  return fits;
}

bool Matcher::read_on(std::string_view bytes, TokenId control) {
  CompiledGrammar& g = shared();
  current_ = groups_;
  bool accepting = accepting_;
  const auto read = [&](auto next_of) {
    accepting = false;
    next_.clear();
    // pop() appends while this goes on; what it appends was reached already.
    for (const Group& group : current_) {
      const ConfigId to = next_of(group.config);
      if (to == kDeadConfig) continue;
      if (g.configs_.has_places(to)) next_.push_back({to, group.stack});
      if (g.configs_.escaped(to)) pop(next_, group.stack, accepting);
    }
    std::sort(next_.begin(), next_.end());
    next_.erase(std::unique(next_.begin(), next_.end()), next_.end());
    current_.swap(next_);
  };
  if (bytes.empty()) {
    read([&](ConfigId config) { return g.configs_.after_control(config, control); });
  } else {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const char c = bytes[i];
      read([&](ConfigId config) { return g.configs_.next(config, static_cast<std::uint8_t>(c)); });
      if (current_.size() > kMaxGroups) return false;
      if (current_.empty() && i + 1 < bytes.size()) return false;
    }
  }
  if (current_.empty() && !accepting) return false;
  accepting_ = accepting;
  settle(current_);
  return true;
}

void Matcher::pop(std::vector<Group>& into, std::uint32_t stack, bool& accepting) {
  Configs& configs = shared().configs_;
  while (stack != 0) {
    const ConfigId entry = configs.entry(stacks_[stack].return_to);
    stack = stacks_[stack].below;
    if (configs.has_places(entry)) into.push_back({entry, stack});
    if (!configs.escaped(entry)) return;
  }
  accepting = true;
}

// Moves the calls that `reached` entered onto real stacks, and gathers places by stack.
void Matcher::settle(std::vector<Group>& reached) {
  Configs& configs = shared().configs_;
  if (stacks_.size() > collect_at_) collect_garbage();
  std::vector<Group>& out = next_;
  out.clear();
  for (const Group& group : reached) {
    if (!configs.has_places(group.config)) continue;
    for (const Configs::Part& part : configs.parts(group.config)) {
      std::uint32_t stack = group.stack;
      for (const StateId state : part.returns) stack = push(stack, state);
      const auto same =
          std::find_if(out.begin(), out.end(), [&](const Group& o) { return o.stack == stack; });
      if (same == out.end()) {
        out.push_back({part.states, stack});
      } else {
        same->config = configs.join(same->config, part.states);
      }
    }
  }
  std::sort(out.begin(), out.end());
  groups_.swap(out);
  remember_states();
}

void Matcher::remember_states() {
  states_.resize(groups_.size());
  remembered_.resize(groups_.size(), kDeadConfig);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (remembered_[i] == groups_[i].config) continue;
    remembered_[i] = groups_[i].config;
    states_[i] = shared().configs_.states(groups_[i].config);
  }
}

std::uint32_t Matcher::push(std::uint32_t below, StateId return_to) {
  const std::uint64_t key = (std::uint64_t{below} << 32) | return_to;
  const auto [it, fresh] = stack_of_.emplace(key, static_cast<std::uint32_t>(stacks_.size()));
  if (fresh) {
    const std::uint64_t distance =
        std::uint64_t{grammar_->automaton().distance[return_to]} + stacks_[below].distance;
    stacks_.push_back({return_to, below,
                       static_cast<std::uint32_t>(std::min<std::uint64_t>(distance, kNever - 1))});
  }
  return it->second;
}

// Keeps the stacks that the groups about to be settled stand on. Nodes point to earlier ones only.
void Matcher::collect_garbage() {
  std::vector<std::uint8_t> live(stacks_.size(), 0);
  live[0] = 1;
  for (const Group& group : current_) {
    for (std::uint32_t s = group.stack; live[s] == 0; s = stacks_[s].below) live[s] = 1;
  }
  std::vector<std::uint32_t> moved(stacks_.size(), 0);
  std::size_t kept = 0;
  stack_of_.clear();
  for (std::size_t s = 0; s < stacks_.size(); ++s) {
    if (live[s] == 0) continue;
    StackNode node = stacks_[s];
    node.below = moved[node.below];
    moved[s] = static_cast<std::uint32_t>(kept);
    stacks_[kept++] = node;
    if (s != 0) {
      stack_of_.emplace((std::uint64_t{node.below} << 32) | node.return_to, moved[s]);
    }
  }
  stacks_.resize(kept);
  collect_at_ = std::max<std::size_t>(2048, 2 * kept);
  for (Group& group : current_) group.stack = moved[group.stack];
}

std::uint32_t Matcher::distance() const {
  if (accepting_) return 0;
  const std::lock_guard lock(shared().mutex_);
  begin();
  std::uint64_t best = kNever;
  for (const Group& group : groups_) {
    best = std::min<std::uint64_t>(best, std::uint64_t{shared().configs_.distance(group.config)} +
                                             stacks_[group.stack].distance);
  }
  return static_cast<std::uint32_t>(best);
}

Status Matcher::fill_mask(std::span<std::uint32_t> mask, std::uint64_t budget) const {
  CompiledGrammar& g = shared();
  const std::lock_guard filling(g.filling_);
  const std::lock_guard lock(g.mutex_);
  return fill(mask, budget);
}

Result<bool> Matcher::try_fill_mask(std::span<std::uint32_t> mask, std::uint64_t budget) const {
  CompiledGrammar& g = shared();
  const std::unique_lock filling(g.filling_, std::try_to_lock);
  if (!filling.owns_lock()) return false;
  const std::lock_guard lock(g.mutex_);
  begin();
  for (const Group& group : groups_) {
    if (!g.masks_.is_quick(group.config, stacks_, group.stack, budget)) return false;
  }
  FLOTILLA_TRY_STATUS(fill(mask, budget));
  return true;
}

Status Matcher::fill(std::span<std::uint32_t> mask, std::uint64_t budget) const {
  CompiledGrammar& g = shared();
  const auto words = mask.first(g.vocabulary_->num_words());
  const Error too_ambiguous{ErrorCode::kTooLarge, "the constraint is too ambiguous to be followed"};
  while (true) {
    begin();
    if (exploded_ || groups_.size() > kMaxGroups) return too_ambiguous;
    std::fill(mask.begin(), mask.end(), 0);
    g.is_filling_ = true;
    for (const Group& group : groups_) {
      g.masks_.add(group.config, stacks_, group.stack, budget, words);
    }
    g.is_filling_ = false;
    const bool exploded = g.configs_.exploded();
    g.configs_.set_exploded(false);
    if (exploded) {
      g.is_broken_ = true;
      return too_ambiguous;
    }
    if (!g.is_broken_) return ok_status();
    // Another output went wrong in between: what it left must not decide here.
  }
}

}  // namespace flotilla::grammar
