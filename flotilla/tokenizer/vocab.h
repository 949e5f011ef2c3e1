// Token strings and their ids in a compact form: one block of text, one open-addressed index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"

namespace flotilla::tokenizer {

// Ids above this are refused at load: tables by id are dense.
inline constexpr TokenId kMaxTokenId = (1 << 24) - 1;

class Vocab {
 public:
  // A token that is there already gets the new id. `id` is between 0 and kMaxTokenId.
  void add(std::string_view token, TokenId id);
  // Call once after the last add(): builds the table by id.
  void seal();

  std::optional<TokenId> find(std::string_view token) const;
  std::optional<std::string_view> token(TokenId id) const;  // valid while the vocabulary lives
  std::size_t size() const { return entries_.size(); }      // distinct strings
  std::size_t id_limit() const { return by_id_.size(); }    // highest id + 1
  bool has_shared_ids() const { return has_shared_ids_; }   // two strings with one id
  std::size_t longest_token_bytes() const { return longest_; }
  std::size_t memory_bytes() const {
    return text_.capacity() + entries_.capacity() * sizeof(Entry) +
           (slots_.capacity() + by_id_.capacity()) * sizeof(std::uint32_t);
  }
  // Calls visit(token, id) for every token in the order of the file.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Entry& e : entries_) visit(text_of(e), e.id);
  }

 private:
  struct Entry {
    std::uint32_t offset;
    std::uint32_t size;
    TokenId id;
    std::uint32_t hash;
  };
  static constexpr std::uint32_t kEmpty = 0xFFFFFFFF;
  std::size_t slot_of(std::string_view token, std::uint32_t hash) const;
  std::string_view text_of(const Entry& e) const { return {text_.data() + e.offset, e.size}; }
  void grow();

  std::string text_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // index into entries_ or kEmpty
  std::vector<std::uint32_t> by_id_;  // index into entries_ or kEmpty
  std::size_t longest_ = 0;
  bool has_shared_ids_ = false;
};

}  // namespace flotilla::tokenizer
