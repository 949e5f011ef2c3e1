// The parts of a Tokenizer; only for the sources of this module.
#pragma once

#include <optional>
#include <string_view>

#include "flotilla/tokenizer/added_tokens.h"
#include "flotilla/tokenizer/bpe.h"
#include "flotilla/tokenizer/decoder.h"
#include "flotilla/tokenizer/normalizer.h"
#include "flotilla/tokenizer/post_processor.h"
#include "flotilla/tokenizer/pre_tokenizer.h"
#include "flotilla/tokenizer/tokenizer.h"

namespace flotilla::tokenizer {

struct Tokenizer::Impl {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  AddedTokens added;
  Bpe bpe;

  // The string that stands for `id` at the begin of decoding; nullopt when it is unknown or to be
  // skipped.
  std::optional<std::string_view> token_to_decode(TokenId id, bool skip_special_tokens) const;
};

}  // namespace flotilla::tokenizer
