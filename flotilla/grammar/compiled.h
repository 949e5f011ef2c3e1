// A constraint made ready for one vocabulary, and the matchers that follow outputs through it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/grammar/automaton.h"
#include "flotilla/grammar/configs.h"
#include "flotilla/grammar/masks.h"
#include "flotilla/grammar/vocabulary.h"
#include "flotilla/grammar/yielding_mutex.h"

namespace flotilla::grammar {

// Shared by all requests with the same constraint; any thread.
class CompiledGrammar {
 public:
  // What is remembered of configurations and masks; beyond it everything is forgotten once and
  // computed again as needed.
  static constexpr std::size_t kMaxCacheBytes = std::size_t{24} << 20;

  CompiledGrammar(Automaton automaton, std::shared_ptr<const Vocabulary> vocabulary);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const Automaton& automaton() const { return automaton_; }
  std::size_t memory_bytes() const;
  std::uint64_t num_walks() const;

 private:
  friend class Matcher;

  void forget();

  const Automaton automaton_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::mutex filling_;  // held while a mask is filled; locked before mutex_
  mutable YieldingMutex mutex_;
  Configs configs_;          // guarded by mutex_
  Masks masks_;              // guarded by both
  std::uint64_t epoch_ = 0;  // guarded by mutex_; counts how often everything was forgotten
  bool is_filling_ = false;  // guarded by mutex_; nothing may be forgotten now
  bool is_broken_ = false;   // guarded by mutex_; what is remembered is not complete
};

// Follows one output. Copying it is cheap: a fork. Owned by one thread at a time. Waits for other
// matchers of the grammar only as long as one of their quick calls takes, never for a mask that
// must be walked; except in fill_mask().
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const CompiledGrammar> grammar);

  // Takes a token. False, and no change, when it may not come here.
  bool accept(TokenId token);
  // For tests and texts without tokens: bytes instead of a token.
  bool accept_bytes(std::string_view bytes);
  // The output so far is complete.
  bool is_accepting() const { return accepting_; }
  // Nothing can follow.
  bool is_finished() const { return groups_.empty(); }
  // This many further tokens surely suffice to complete the output (an end token not counted).
  std::uint32_t distance() const;
  // Writes the tokens that may come; of those, only such after which `budget` further tokens
  // suffice to complete the output. Words beyond the vocabulary are cleared. An error when the
  // constraint is too ambiguous to be followed.
  Status fill_mask(std::span<std::uint32_t> mask, std::uint64_t budget = ~std::uint64_t{0}) const;
  // The same, unless the vocabulary would have to be walked or somebody else is at it: then false,
  // and `mask` is of no use.
  Result<bool> try_fill_mask(std::span<std::uint32_t> mask, std::uint64_t budget) const;

  const CompiledGrammar& grammar() const { return *grammar_; }

 private:
  struct Group {
    ConfigId config = kDeadConfig;  // valid in epoch_
    std::uint32_t stack = 0;
    auto operator<=>(const Group&) const = default;
  };
  static constexpr std::size_t kMaxGroups = 256;

  CompiledGrammar& shared() const { return const_cast<CompiledGrammar&>(*grammar_); }
  void begin() const;  // with the mutex held: ids are valid after it
  Status fill(std::span<std::uint32_t> mask, std::uint64_t budget) const;
  bool advance(std::string_view bytes, TokenId control);
  bool read_on(std::string_view bytes, TokenId control);
  void pop(std::vector<Group>& into, std::uint32_t stack, bool& accepting);
  void settle(std::vector<Group>& reached);
  std::uint32_t push(std::uint32_t below, StateId return_to);
  void collect_garbage();
  void remember_states();

  std::shared_ptr<const CompiledGrammar> grammar_;
  mutable std::vector<Group> groups_;
  mutable std::uint64_t epoch_ = 0;
  std::vector<std::vector<StateId>> states_;                   // of groups_, valid for ever
  std::vector<StackNode> stacks_;                              // 0: the bottom
  std::unordered_map<std::uint64_t, std::uint32_t> stack_of_;  // (below, return state)
  mutable std::vector<ConfigId> remembered_;  // the groups' when states_ was written
  std::size_t collect_at_ = 2048;             // nodes in stacks_
  bool accepting_ = false;
  bool exploded_ = false;              // what came was too ambiguous
  std::vector<Group> current_, next_;  // working memory
};

}  // namespace flotilla::grammar
