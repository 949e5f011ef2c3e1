#include "flotilla/tokenizer/tokenizer_impl.h"

namespace flotilla::tokenizer {

struct Detokenizer::State {
  State(const Tokenizer& t, bool skip)
      : tokenizer(t), skip_special_tokens(skip), stream(t.impl_->decoder, text) {}
  const Tokenizer& tokenizer;
  bool skip_special_tokens;
  std::string text;
  Decoder::Stream stream;  // appends to `text`
};

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : state_(std::make_unique<State>(tokenizer, skip_special_tokens)) {}
Detokenizer::~Detokenizer() = default;
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;

std::string Detokenizer::push(TokenId id) {
  state_->text.clear();
  if (const auto token =
          state_->tokenizer.impl_->token_to_decode(id, state_->skip_special_tokens)) {
    state_->stream.push(*token);
  }
  return std::move(state_->text);
}

std::string Detokenizer::finish() {
  state_->text.clear();
  state_->stream.finish();
  return std::move(state_->text);
}

}  // namespace flotilla::tokenizer
