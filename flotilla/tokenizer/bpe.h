// Byte-pair encoding: words to ids by merging neighbours in order of rank.
#pragma once

#include <array>
#include <boost/json/fwd.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/tokenizer/merge.h"
#include "flotilla/tokenizer/pair_table.h"
#include "flotilla/tokenizer/tokenizer_file.h"
#include "flotilla/tokenizer/vocab.h"

namespace flotilla::tokenizer {

// Working memory of one encode().
struct BpeBuffer {
  std::vector<TokenId> symbols;
  MergeBuffer merge;
  std::string text;
};

// Immutable; safe from any thread.
class Bpe {
 public:
  // `model` is the member of that name; `file` gives the tables and is emptied of them. Ids for
  // which `is_control` holds never come out of encode(), save the unknown token: they belong to
  // added tokens only.
  static Result<Bpe> build(TokenizerFile&& file, const boost::json::value& model,
                           const std::function<bool(TokenId)>& is_control, bool byte_level);

  // Appends the ids of `word` (well-formed UTF-8, not empty). With byte_level the word is plain
  // text whose bytes stand for letters of the byte-level alphabet. Fails with kContextLength once
  // more than `max_tokens` ids in `out` are certain (0: no limit), which may be before all of the
  // work.
  Status encode(std::string_view word, std::vector<TokenId>& out, std::size_t max_tokens,
                BpeBuffer& buffer) const;

  const Vocab& vocab() const { return vocab_; }
  std::size_t num_merges() const { return merges_.size(); }
  std::size_t memory_bytes() const;

 private:
  static constexpr TokenId kNoToken = -1;
  // Ids of single characters: pages of 256 code points, only those in use.
  struct CharIds {
    std::vector<std::int16_t> page_of;
    std::vector<std::array<TokenId, 256>> pages;
    void set(char32_t c, TokenId id);
    TokenId get(char32_t c) const {
      const std::int16_t page = page_of[c >> 8];
      return page < 0 ? kNoToken : pages[static_cast<std::size_t>(page)][c & 255];
    }
  };

  Status read_settings(const boost::json::value& model);
  void read_characters(bool byte_level);
  Status read_merges(const RawMerges& raw);
  void find_borders();
  Status encode_word(std::string_view word, std::vector<TokenId>& out, std::size_t max_tokens,
                     BpeBuffer& buffer) const;
  Status make_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  Status add_unknown(std::string_view piece, std::vector<TokenId>& symbols,
                     std::optional<TokenId>& pending) const;
  TokenId affixed_id(std::string_view piece, bool is_first, bool is_last) const;
  std::optional<TokenId> whole_word(std::string_view word, BpeBuffer& buffer) const;

  Vocab vocab_;
  PairTable merges_;
  // Pairs of first symbols that lie side by side in the product of some merge. Where a pair is not
  // in here no token crosses, and the word falls into parts. Empty when that cannot be told.
  PairTable adjacent_;
  bool has_borders_ = false;
  CharIds chars_;
  // By byte: the id of its letter when byte_level_, else of its fallback token when byte_fallback_.
  std::array<TokenId, 256> byte_ids_{};
  bool all_bytes_ = false;  // byte_ids_ has no gap
  std::vector<bool> is_control_;
  std::optional<std::string> unk_token_;
  std::string prefix_;       // continuing_subword_prefix
  std::string suffix_;       // end_of_word_suffix
  bool byte_level_ = false;  // words are bytes, each with a letter in the vocabulary
  bool maps_bytes_ = false;  // words are bytes, but must be spelled out in letters first
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::size_t max_bytes_per_token_ = 0;  // 0: not known
};

}  // namespace flotilla::tokenizer
