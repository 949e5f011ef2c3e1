// The added tokens of tokenizer.json: strings that are cut out of the text before the model sees
// it.
#pragma once

#include <array>
#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/tokenizer/normalizer.h"
#include "flotilla/tokenizer/vocab.h"

namespace flotilla::tokenizer {

// The longest content of an added token. Together with the length of the text it bounds the time of
// a search.
inline constexpr std::size_t kMaxAddedTokenBytes = 1024;

struct AddedToken {
  TokenId id = 0;
  std::string content;  // as in the file
  std::string
      normalized_content;  // what the normalizer makes of it; what is searched when `normalized`
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
  // Some entry with this content is special; what decides about trust and skipping.
  bool is_control = false;
};

// A stretch of a text: an added token, or text between two.
struct TokenSplit {
  std::size_t begin;
  std::size_t end;
  const AddedToken* token;  // nullptr: text
};

// Immutable after parse(); safe from any thread.
class AddedTokens {
 public:
  // Ids are given as the reference does: a token of the model keeps its id, others follow in order.
  static Result<AddedTokens> parse(const boost::json::value* value, const Vocab& vocab,
                                   const Normalizer& normalizer);

  // Covers `text` with splits, in order. `normalized` picks the tokens to look for. `trust` is as
  // in NormalizedText: control tokens match only where all of their bytes are trusted; empty means
  // everywhere.
  void split(std::string_view text, std::string_view trust, bool normalized,
             std::vector<TokenSplit>& out) const;

  const AddedToken* by_id(TokenId id) const;
  const AddedToken* by_content(std::string_view content) const;
  std::size_t id_limit() const { return id_limit_; }  // highest id + 1
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  // A trie over the contents; children of a node are consecutive and sorted by byte.
  struct Trie {
    struct Node {
      std::uint32_t first_child = 0;
      std::int32_t token = -1;  // index into tokens_
      std::uint16_t num_children = 0;
      std::uint8_t byte = 0;
    };
    std::vector<Node> nodes;  // the root is nodes[0]
    std::array<bool, 256> starts{};
    void build(std::vector<std::pair<std::string_view, std::int32_t>> entries);
    const Node* child(const Node& node, unsigned char byte) const;
  };
  const AddedToken* longest_at(const Trie& trie, std::string_view text, std::string_view trust,
                               std::size_t begin, std::size_t* end) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<TokenId, std::size_t> by_id_;
  std::unordered_map<std::string, TokenId> by_content_;
  Trie raw_;
  Trie normalized_;
  std::size_t id_limit_ = 0;
};

}  // namespace flotilla::tokenizer
