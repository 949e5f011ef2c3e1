// Which tokens may come, per configuration of an automaton and for a whole vocabulary.
//
// Of a configuration without calls of its own, most tokens are decided by itself; those are
// remembered (dense or as a list, whichever is smaller). For a token that leaves the
// configuration's base half-way, the node of the trie is remembered; whoever knows the stack goes
// on from there.
//
// Used by one thread at a time. Long walks let others at `mutex`, which guards the configurations;
// they may add some meanwhile, and must not drop any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "flotilla/grammar/configs.h"
#include "flotilla/grammar/vocabulary.h"
#include "flotilla/grammar/yielding_mutex.h"

namespace flotilla::grammar {

// The calls below a configuration, as the matcher keeps them.
struct StackNode {
  StateId return_to = 0;
  std::uint32_t below = 0;
  std::uint32_t distance = 0;  // tokens that suffice to leave this and all below
};

class Masks {
 public:
  Masks(const Automaton& automaton, Configs& configs, const Vocabulary& vocabulary,
        YieldingMutex& mutex)
      : automaton_(automaton), configs_(configs), vocabulary_(vocabulary), mutex_(mutex) {}

  // Adds the tokens that may come at `config` over `stacks[stack]` to `mask`, which has
  // vocabulary.num_words() words. After each of them the end must be within `budget` tokens.
  void add(ConfigId config, std::span<const StackNode> stacks, std::uint32_t stack,
           std::uint64_t budget, std::span<std::uint32_t> mask);
  // Whether add() would find everything that takes long.
  bool is_quick(ConfigId config, std::span<const StackNode> stacks, std::uint32_t stack,
                std::uint64_t budget) const;

  void clear() {
    own_.clear();
    bases_.clear();
    families_.clear();
    bytes_ = 0;
  }
  std::size_t memory_bytes() const { return bytes_; }
  std::uint64_t num_walks() const { return num_walks_; }  // of the whole trie, for statistics

 private:
  // Tokens with the distance after each, largest first, as far as that is above `common`: what must
  // be taken out of a mask when less is left, down to `common`. Below that the trie is walked.
  struct Costly {
    std::vector<std::pair<std::uint32_t, TokenId>> tokens;
    std::uint32_t common = 0;
  };
  // A walk from the highest level of a family, for all levels: each token and escape with the
  // levels that it uses up, sorted by them.
  struct Family {
    std::vector<std::pair<std::uint32_t, TokenId>> tokens;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> escapes;
    Costly costly;
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> dense;  // by levels left
  };
  struct Own {
    std::vector<std::uint32_t> words;    // dense, or
    std::vector<TokenId> tokens;         // a list
    std::vector<std::uint32_t> escapes;  // nodes with children at which the base is left
    // Instead of all of these: the family, and how many levels are left.
    Family* family = nullptr;
    std::uint32_t level = 0;
    std::vector<std::pair<TokenId, std::uint32_t>> controls;  // with the distance after each
    Costly costly;
  };

  const Own& of(ConfigId config);
  void fill(Own& own, ConfigId config);
  void let_others_pass() {
    if (++num_nodes_ % 64 == 0) mutex_.let_pass();
  }
  void walk_all(Own& own, ConfigId config);
  // Wide configurations often differ from one that was walked in a corner of the vocabulary only:
  // a key that may be anything but "name", after "na".
  const Own* find_base(ConfigId config, ConfigId& base) const;
  void walk_difference(Own& own, ConfigId config, const Own& base_own, ConfigId base);
  Family& family(std::uint32_t family);
  std::vector<std::uint32_t> to_words(std::span<const std::pair<std::uint32_t, TokenId>> tokens);
  static Costly costly_of(std::vector<std::pair<std::uint32_t, TokenId>> distances);
  const std::vector<std::uint32_t>& dense_of(Family& family, std::uint32_t level);
  void add_tokens(const Own& own, std::span<std::uint32_t> mask);
  // Goes over the subtree of `node`, at which `config` holds.
  void walk(std::uint32_t node, ConfigId config, std::span<const StackNode> stacks,
            std::uint32_t stack, std::uint64_t budget, std::span<std::uint32_t> mask);
  // The same in whoever called, after the base was left at `node`.
  void leave(std::uint32_t node, std::span<const StackNode> stacks, std::uint32_t stack,
             std::uint64_t budget, std::span<std::uint32_t> mask);

  const Automaton& automaton_;
  Configs& configs_;
  const Vocabulary& vocabulary_;
  YieldingMutex& mutex_;
  std::unordered_map<ConfigId, std::unique_ptr<Own>> own_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Family>> families_;
  std::vector<ConfigId> bases_;       // the latest that were walked whole and are dense
  std::vector<std::uint32_t> share_;  // working memory of add()
  std::size_t bytes_ = 0;
  std::uint64_t num_walks_ = 0;
  std::uint64_t num_nodes_ = 0;  // walked over
};

}  // namespace flotilla::grammar
