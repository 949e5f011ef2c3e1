// The tokens of a vocabulary as a trie of their bytes. Built once per tokenizer; immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/tokenizer/tokenizer.h"

namespace flotilla::grammar {

// Nodes in preorder: the subtree of node i is [i, end). Node 0 is the root.
struct TrieNode {
  std::uint32_t end = 0;
  std::uint32_t first_token = 0;  // index into Vocabulary::tokens()
  std::uint16_t depth = 0;        // bytes from the root
  std::uint8_t num_tokens = 0;    // that end here; several ids may have the same bytes
  std::uint8_t byte = 0;          // of the edge that leads here
};

class Vocabulary {
 public:
  // Longer tokens are never allowed in constrained output.
  static constexpr std::size_t kMaxTokenBytes = 200;

  // Control tokens stay out of the trie: they never match as text.
  static std::shared_ptr<const Vocabulary> from(const tokenizer::Tokenizer& tokenizer);
  // For tests: (id, bytes) of text tokens, (literal, id) of control tokens.
  static std::shared_ptr<const Vocabulary> from(
      std::vector<std::pair<TokenId, std::string>> text_tokens,
      std::vector<std::pair<std::string, TokenId>> control_tokens);

  std::size_t size() const { return bytes_of_.size(); }  // highest id + 1
  std::size_t num_words() const { return (size() + 31) / 32; }
  std::size_t max_token_bytes() const { return max_token_bytes_; }
  std::span<const TrieNode> trie() const { return trie_; }
  std::span<const TokenId> tokens() const { return tokens_; }
  // One bit per token that is text.
  std::span<const std::uint32_t> text_mask() const { return text_mask_; }
  // Empty for control tokens and ids that are not in the vocabulary.
  std::string_view bytes(TokenId id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= bytes_of_.size()) return {};
    const auto [begin, length] = bytes_of_[static_cast<std::size_t>(id)];
    return {text_.data() + begin, length};
  }
  std::optional<TokenId> control_token(std::string_view literal) const;
  std::size_t memory_bytes() const;

 private:
  Vocabulary() = default;
  void build(std::vector<std::pair<TokenId, std::string>> tokens);

  std::vector<TrieNode> trie_;
  std::vector<TokenId> tokens_;
  std::vector<std::uint32_t> text_mask_;
  std::string text_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> bytes_of_;
  std::unordered_map<std::string, TokenId> control_;
  std::size_t max_token_bytes_ = 0;
};

}  // namespace flotilla::grammar
