#include "flotilla/tokenizer/bpe.h"

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/json/json.h"
#include "flotilla/tokenizer/byte_level.h"
#include "flotilla/tokenizer/unicode.h"

namespace flotilla::tokenizer {
namespace {

constexpr std::size_t kMaxWordBytes = std::size_t{1} << 31;

Error context_length(std::size_t max_tokens) {
  return Error{ErrorCode::kContextLength,
               "the text has more than " + std::to_string(max_tokens) + " tokens"};
}

std::string shortened(std::string_view token) {
  if (token.size() <= 60) return std::string(token);
  std::size_t end = 60;
  while ((static_cast<unsigned char>(token[end]) & 0xC0) == 0x80) --end;
  return std::string(token.substr(0, end)) + "...";
}

}  // namespace

void Bpe::CharIds::set(char32_t c, TokenId id) {
  if (page_of.empty()) page_of.assign(0x1100, -1);
  std::int16_t& page = page_of[c >> 8];
  if (page < 0) {
    page = static_cast<std::int16_t>(pages.size());
    pages.emplace_back().fill(kNoToken);
  }
  pages[static_cast<std::size_t>(page)][c & 255] = id;
}

Status Bpe::read_settings(const boost::json::value& model) {
  FLOTILLA_TRY(const auto dropout, json::get_double(model, "dropout", 0, 1, "model"));
  if (dropout.value_or(0) != 0) {
    return Error{ErrorCode::kUnsupported,
                 "tokenizer: model.dropout (random merges) is not supported"};
  }
  FLOTILLA_TRY(unk_token_, json::get_string(model, "unk_token", "model"));
  FLOTILLA_TRY(const auto prefix, json::get_string(model, "continuing_subword_prefix", "model"));
  FLOTILLA_TRY(const auto suffix, json::get_string(model, "end_of_word_suffix", "model"));
  FLOTILLA_TRY(const auto fuse, json::get_bool(model, "fuse_unk", "model"));
  FLOTILLA_TRY(const auto fallback, json::get_bool(model, "byte_fallback", "model"));
  FLOTILLA_TRY(const auto ignore, json::get_bool(model, "ignore_merges", "model"));
  prefix_ = prefix.value_or("");
  suffix_ = suffix.value_or("");
  fuse_unk_ = fuse.value_or(false);
  byte_fallback_ = fallback.value_or(false);
  ignore_merges_ = ignore.value_or(false);
  return ok_status();
}

void Bpe::read_characters(bool byte_level) {
  chars_.page_of.assign(0x1100, -1);
  vocab_.for_each([&](std::string_view token, TokenId id) {
    if (token.empty() || is_control_[static_cast<std::size_t>(id)]) return;
    const auto [c, size] = decode_char(token.data());
    if (size == token.size()) chars_.set(c, id);
  });
  const auto fill = [&](auto id_of) {
    all_bytes_ = true;
    for (unsigned b = 0; b < 256; ++b) {
      byte_ids_[b] = id_of(static_cast<std::uint8_t>(b));
      all_bytes_ = all_bytes_ && byte_ids_[b] != kNoToken;
    }
  };
  if (byte_level && prefix_.empty() && suffix_.empty()) {
    fill([&](std::uint8_t b) {
      return chars_.get(decode_char(byte_level_char(b).data()).code_point);
    });
    byte_level_ = all_bytes_;
  }
  maps_bytes_ = byte_level && !byte_level_;
  if (!byte_level_) {
    fill([&](std::uint8_t b) {
      return byte_fallback_ ? vocab_.find(byte_fallback_token(b)).value_or(kNoToken) : kNoToken;
    });
  }
  // Otherwise one unknown token may stand for any number of bytes, or bytes may vanish.
  if (all_bytes_) max_bytes_per_token_ = vocab_.longest_token_bytes();
}

Status Bpe::read_merges(const RawMerges& raw) {
  merges_.reserve(raw.size());
  std::string product;
  for (std::size_t rank = 0; rank < raw.size(); ++rank) {
    const std::string_view left = raw.left(rank);
    const std::string_view right = raw.right(rank);
    const auto missing = [&](std::string_view token) {
      return Error{ErrorCode::kInvalidArgument, "tokenizer: model.merges[" + std::to_string(rank) +
                                                    "]: '" + shortened(token) +
                                                    "' is not in the vocabulary"};
    };
    const auto left_id = vocab_.find(left);
    if (!left_id) return missing(left);
    const auto right_id = vocab_.find(right);
    if (!right_id) return missing(right);
    product = left;
    if (right.size() < prefix_.size()) return missing(right);
    product += right.substr(prefix_.size());
    const auto product_id = vocab_.find(product);
    if (!product_id) return missing(product);
    if (is_control_[static_cast<std::size_t>(*product_id)]) continue;
    merges_.insert(*left_id, *right_id, static_cast<std::uint32_t>(rank), *product_id);
  }
  return ok_status();
}

void Bpe::find_borders() {
  if (!prefix_.empty() || !suffix_.empty() || vocab_.has_shared_ids()) return;
  // Symbols whose string is not what they stand for must take no part in merges.
  std::vector<bool> is_stand_in(vocab_.id_limit());
  if (!byte_level_) {
    for (const TokenId id : byte_ids_) {
      if (id != kNoToken) is_stand_in[static_cast<std::size_t>(id)] = true;
    }
  }
  if (unk_token_) {
    if (const auto id = vocab_.find(*unk_token_)) is_stand_in[static_cast<std::size_t>(*id)] = true;
  }
  bool usable = true;
  const std::size_t room = std::max<std::size_t>(4096, merges_.size() / 2);
  adjacent_.reserve(room);
  merges_.for_each([&](const PairTable::Entry& m) {
    for (const TokenId id : {m.left, m.right, m.product})
      usable = usable && !is_stand_in[static_cast<std::size_t>(id)];
    const std::string_view left = *vocab_.token(m.left);
    const std::string_view right = *vocab_.token(m.right);
    if (left.empty() || right.empty()) return;
    const TokenId a =
        chars_.get(decode_char(left.data() + previous_char(left, left.size())).code_point);
    const TokenId b = chars_.get(decode_char(right.data()).code_point);
    if (a == kNoToken || b == kNoToken) return;    // can never come about
    if (adjacent_.size() >= room) usable = false;  // very unlike a real vocabulary
    if (usable) adjacent_.insert(a, b, 0, 0);
  });
  has_borders_ = usable;
  if (!usable) adjacent_ = PairTable{};
}

Result<Bpe> Bpe::build(TokenizerFile&& file, const boost::json::value& model,
                       const std::function<bool(TokenId)>& is_control, bool byte_level) {
  if (!file.has_vocab)
    return Error{ErrorCode::kInvalidArgument, "tokenizer: model.vocab must be an object"};
  if (!file.has_merges)
    return Error{ErrorCode::kInvalidArgument, "tokenizer: model.merges must be an array"};
  Bpe bpe;
  FLOTILLA_TRY_STATUS(bpe.read_settings(model));
  bpe.vocab_ = std::move(file.vocab);
  bpe.is_control_.resize(bpe.vocab_.id_limit());
  for (std::size_t id = 0; id < bpe.is_control_.size(); ++id)
    bpe.is_control_[id] = is_control(static_cast<TokenId>(id));
  bpe.read_characters(byte_level);
  FLOTILLA_TRY_STATUS(bpe.read_merges(file.merges));
  file.merges = RawMerges{};
  bpe.find_borders();
  return bpe;
}

std::size_t Bpe::memory_bytes() const {
  return vocab_.memory_bytes() + merges_.memory_bytes() + adjacent_.memory_bytes() +
         chars_.pages.size() * sizeof(chars_.pages[0]);
}

Status Bpe::add_unknown(std::string_view piece, std::vector<TokenId>& symbols,
                        std::optional<TokenId>& pending) const {
  if (byte_fallback_) {
    const bool all = std::all_of(piece.begin(), piece.end(), [&](char c) {
      return byte_ids_[static_cast<unsigned char>(c)] != kNoToken;
    });
    if (all) {
      // A waiting unknown token stays waiting: so the reference.
      for (const char c : piece) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      return ok_status();
    }
  }
  if (!unk_token_) return ok_status();  // the character is dropped
  if (pending && fuse_unk_) return ok_status();
  const auto id = vocab_.find(*unk_token_);
  if (!id) {
    return Error{
        ErrorCode::kInvalidArgument,
        "tokenizer: model.unk_token '" + shortened(*unk_token_) + "' is not in the vocabulary"};
  }
  if (pending) symbols.push_back(*pending);
  pending = *id;
  return ok_status();
}

TokenId Bpe::affixed_id(std::string_view piece, bool is_first, bool is_last) const {
  std::string text;
  if (!is_first) text += prefix_;
  text += piece;
  if (is_last) text += suffix_;
  const auto id = vocab_.find(text);
  return id && !is_control_[static_cast<std::size_t>(*id)] ? *id : kNoToken;
}

Status Bpe::make_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  symbols.clear();
  if (byte_level_) {
    for (const char c : word) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return ok_status();
  }
  const bool has_affixes = !prefix_.empty() || !suffix_.empty();
  std::optional<TokenId> pending;  // an unknown token that may still grow
  for (std::size_t i = 0; i < word.size();) {
    const auto [c, size] = decode_char(word.data() + i);
    const bool is_last = i + size == word.size();
    const TokenId id =
        has_affixes ? affixed_id(word.substr(i, size), i == 0, is_last) : chars_.get(c);
    if (id != kNoToken) {
      if (pending) symbols.push_back(*pending);
      pending.reset();
      symbols.push_back(id);
    } else if (has_affixes) {
      const std::string text =
          (i > 0 ? prefix_ : "") + std::string(word.substr(i, size)) + (is_last ? suffix_ : "");
      FLOTILLA_TRY_STATUS(add_unknown(text, symbols, pending));
    } else {
      FLOTILLA_TRY_STATUS(add_unknown(word.substr(i, size), symbols, pending));
    }
    i += size;
  }
  if (pending) symbols.push_back(*pending);
  return ok_status();
}

std::optional<TokenId> Bpe::whole_word(std::string_view word, BpeBuffer& buffer) const {
  if (word.size() > vocab_.longest_token_bytes()) return std::nullopt;
  std::optional<TokenId> id;
  if (byte_level_) {
    buffer.text.clear();
    append_byte_level(buffer.text, word);
    id = vocab_.find(buffer.text);
  } else {
    id = vocab_.find(word);
  }
  // A control token must not come about because a user typed its name.
  if (id && is_control_[static_cast<std::size_t>(*id)]) return std::nullopt;
  return id;
}

Status Bpe::encode(std::string_view word, std::vector<TokenId>& out, std::size_t max_tokens,
                   BpeBuffer& buffer) const {
  if (maps_bytes_) {
    std::string letters;
    append_byte_level(letters, word);
    return encode_word(letters, out, max_tokens, buffer);
  }
  return encode_word(word, out, max_tokens, buffer);
}

Status Bpe::encode_word(std::string_view word, std::vector<TokenId>& out, std::size_t max_tokens,
                        BpeBuffer& buffer) const {
  if (word.size() > kMaxWordBytes) {
    return Error{ErrorCode::kTooLarge, "a word of " + std::to_string(word.size()) +
                                           " bytes exceeds the limit of " +
                                           std::to_string(kMaxWordBytes)};
  }
  if (max_tokens > 0 && max_bytes_per_token_ > 0 &&
      out.size() + word.size() / max_bytes_per_token_ > max_tokens) {
    return context_length(max_tokens);
  }
  if (ignore_merges_) {
    if (const auto id = whole_word(word, buffer)) {
      out.push_back(*id);
      return max_tokens > 0 && out.size() > max_tokens ? Status(context_length(max_tokens))
                                                       : ok_status();
    }
  }
  std::vector<TokenId>& symbols = buffer.symbols;
  FLOTILLA_TRY_STATUS(make_symbols(word, symbols));
  TokenId* begin = symbols.data();
  TokenId* const end = begin + symbols.size();
  while (begin != end) {
    TokenId* part = end;
    if (has_borders_ && symbols.size() > kShortWord) {
      part = begin + 1;
      while (part != end && adjacent_.find(part[-1], *part)) ++part;
    }
    merge_symbols(merges_, {begin, part}, out, buffer.merge);
    if (max_tokens > 0 && out.size() > max_tokens) return context_length(max_tokens);
    begin = part;
  }
  return ok_status();
}

}  // namespace flotilla::tokenizer
