// From a constraint to a CompiledGrammar, through a bounded cache per vocabulary.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "flotilla/base/result.h"
#include "flotilla/grammar/compiled.h"
#include "flotilla/grammar/constraint.h"
#include "flotilla/grammar/vocabulary.h"

namespace flotilla::grammar {

// The control tokens of a model's calls; the notation is Gemma 4's.
struct CallSyntax {
  TokenId open = 0, close = 0, quote = 0;
};

inline constexpr std::size_t kMaxChoices = 1'000;
inline constexpr std::size_t kMaxParallelCalls = 32;

// Without cache. `tools` is the list of a request, or null; needed when calls are constrained.
// Errors carry the param of the offending place.
Result<std::shared_ptr<CompiledGrammar>> compile(const Constraint& constraint,
                                                 const boost::json::value& tools,
                                                 const std::optional<CallSyntax>& calls,
                                                 std::shared_ptr<const Vocabulary> vocabulary);

// Thread-safe.
class GrammarCache {
 public:
  static constexpr std::size_t kMaxEntries = 32;
  static constexpr std::size_t kMaxBytes = std::size_t{192} << 20;

  GrammarCache(std::shared_ptr<const Vocabulary> vocabulary, std::optional<CallSyntax> calls)
      : vocabulary_(std::move(vocabulary)), calls_(calls) {}

  Result<std::shared_ptr<const CompiledGrammar>> get(const Constraint& constraint,
                                                     const boost::json::value& tools);
  std::size_t num_entries() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;
  };

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const std::optional<CallSyntax> calls_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // guarded by mutex_; the latest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;  // guarded by mutex_
};

}  // namespace flotilla::grammar
