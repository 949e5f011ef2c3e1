// A tokenizer read from a Hugging Face tokenizer.json. Immutable after load: every member is safe
// from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flotilla/base/ids.h"
#include "flotilla/base/result.h"
#include "flotilla/base/text_span.h"

namespace flotilla::tokenizer {

struct EncodeOptions {
  bool add_special_tokens = true;  // run the post-processor (e.g. prepend <bos>)
  std::size_t max_tokens =
      0;  // 0: no limit; else kContextLength as soon as it is certain to be exceeded
};

class Tokenizer {
 public:
  // Errors name the file and the offending component.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::string& path);
  static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view json);
  ~Tokenizer();

  // As the reference implementation encodes one string: added tokens match anywhere.
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;

  // The same for the concatenation of `spans`, except that added tokens marked special match only
  // where all of their characters lie in trusted spans.
  Result<std::vector<TokenId>> encode(std::span<const TextSpan> spans,
                                      const EncodeOptions& options = {}) const;

  // As the reference decodes a whole sequence. Unknown ids are skipped.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  std::size_t vocab_size() const;  // highest id + 1, added tokens included
  std::optional<TokenId> token_to_id(std::string_view token) const;
  std::optional<std::string_view> id_to_token(TokenId id) const;  // as written in the file
  bool is_special(TokenId id) const;                              // an added token marked special
  // The bytes that `id` contributes in the middle of a text (after undoing byte level, byte
  // fallback, metaspace); what logprobs report. Special tokens give their literal text.
  std::string token_bytes(TokenId id) const;

  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);

 private:
  friend class Detokenizer;
  std::unique_ptr<const Impl> impl_;
};

// Turns a stream of ids into text pieces; the pieces joined equal Tokenizer::decode of all ids.
// Never emits half a character: incomplete UTF-8 is held back, and replaced by U+FFFD only when it
// can no longer be completed. Owned by one thread. The tokenizer must outlive it.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);
  ~Detokenizer();
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  std::string push(TokenId id);
  std::string finish();  // what is still held back

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flotilla::tokenizer
