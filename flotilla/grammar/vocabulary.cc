#include "flotilla/grammar/vocabulary.h"

#include <algorithm>

namespace flotilla::grammar {

std::shared_ptr<const Vocabulary> Vocabulary::from(const tokenizer::Tokenizer& tokenizer) {
  auto out = std::shared_ptr<Vocabulary>(new Vocabulary());
  std::vector<std::pair<TokenId, std::string>> tokens;
  tokens.reserve(tokenizer.vocab_size());
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.vocab_size()); ++id) {
    const auto literal = tokenizer.id_to_token(id);
    if (!literal) continue;
    if (tokenizer.is_special(id)) {
      out->control_.emplace(std::string(*literal), id);
    } else {
      tokens.emplace_back(id, tokenizer.token_bytes(id));
    }
  }
  out->bytes_of_.resize(tokenizer.vocab_size());
  out->build(std::move(tokens));
  return out;
}

std::shared_ptr<const Vocabulary> Vocabulary::from(
    std::vector<std::pair<TokenId, std::string>> text_tokens,
    std::vector<std::pair<std::string, TokenId>> control_tokens) {
  auto out = std::shared_ptr<Vocabulary>(new Vocabulary());
  TokenId last = -1;
  for (const auto& [id, bytes] : text_tokens) last = std::max(last, id);
  for (const auto& [literal, id] : control_tokens) {
    last = std::max(last, id);
    out->control_.emplace(literal, id);
  }
  out->bytes_of_.resize(static_cast<std::size_t>(last + 1));
  out->build(std::move(text_tokens));
  return out;
}

void Vocabulary::build(std::vector<std::pair<TokenId, std::string>> tokens) {
  std::erase_if(tokens, [](const auto& token) {
    return token.second.empty() || token.second.size() > kMaxTokenBytes;
  });
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second < b.second : a.first < b.first;
  });
  trie_.push_back({});
  std::vector<std::uint32_t> path = {0};  // the open nodes by depth
  std::string_view last;
  for (const auto& [id, bytes] : tokens) {
    std::size_t shared = 0;
    while (shared < last.size() && shared < bytes.size() && last[shared] == bytes[shared]) ++shared;
    while (path.size() > shared + 1) {
      trie_[path.back()].end = static_cast<std::uint32_t>(trie_.size());
      path.pop_back();
    }
    for (std::size_t i = shared; i < bytes.size(); ++i) {
      path.push_back(static_cast<std::uint32_t>(trie_.size()));
      trie_.push_back({.first_token = static_cast<std::uint32_t>(tokens_.size()),
                       .depth = static_cast<std::uint16_t>(i + 1),
                       .byte = static_cast<std::uint8_t>(bytes[i])});
    }
    TrieNode& node = trie_[path.back()];
    if (node.num_tokens == 255) continue;
    ++node.num_tokens;
    tokens_.push_back(id);
    bytes_of_[static_cast<std::size_t>(id)] = {static_cast<std::uint32_t>(text_.size()),
                                               static_cast<std::uint32_t>(bytes.size())};
    text_ += bytes;
    max_token_bytes_ = std::max(max_token_bytes_, bytes.size());
    last = bytes;
  }
  for (const std::uint32_t node : path) {
    trie_[node].end = static_cast<std::uint32_t>(trie_.size());
  }
  // Nodes without a token of their own point at the next one, which is not theirs: harmless, but
  // confusing in a debugger.
  for (TrieNode& node : trie_) {
    if (node.num_tokens == 0) node.first_token = 0;
  }
  trie_.shrink_to_fit();
  text_mask_.assign(num_words(), 0);
  for (const TokenId id : tokens_) {
    text_mask_[static_cast<std::size_t>(id) / 32] |= 1u << (static_cast<std::uint32_t>(id) % 32);
  }
}

std::optional<TokenId> Vocabulary::control_token(std::string_view literal) const {
  const auto it = control_.find(std::string(literal));
  if (it == control_.end()) return std::nullopt;
  return it->second;
}

std::size_t Vocabulary::memory_bytes() const {
  return trie_.capacity() * sizeof(TrieNode) + tokens_.capacity() * sizeof(TokenId) +
         text_.capacity() + bytes_of_.capacity() * sizeof(bytes_of_[0]);
}

}  // namespace flotilla::grammar
