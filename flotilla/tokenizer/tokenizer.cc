#include "flotilla/tokenizer/tokenizer.h"

#include <algorithm>
#include <boost/json.hpp>

#include "flotilla/base/file.h"
#include "flotilla/base/text.h"
#include "flotilla/json/json.h"
#include "flotilla/tokenizer/component.h"
#include "flotilla/tokenizer/tokenizer_impl.h"

namespace flotilla::tokenizer {
namespace {

// Names the types that exist but are not built.
Status check_model_type(const boost::json::value& model) {
  FLOTILLA_TRY(const auto type, json::get_string(model, "type", "model"));
  // Old files have no type; BPE is the one with merges.
  if (type ? *type == "BPE" : json::find(model, "unk_id") == nullptr) return ok_status();
  return unsupported_component("model", type.value_or("Unigram"));
}

// The bytes of each trusted span, as NormalizedText::trust.
struct JoinedSpans {
  std::string text;
  std::string trust;
};
JoinedSpans join(std::span<const TextSpan> spans) {
  JoinedSpans joined;
  bool all_trusted = true;
  for (const TextSpan& span : spans) {
    joined.text += span.text;
    joined.trust.append(span.text.size(), span.trusted ? '\1' : '\0');
    all_trusted = all_trusted && (span.trusted || span.text.empty());
  }
  if (all_trusted) joined.trust.clear();
  return joined;
}

// One call of encode().
class Encoding {
 public:
  Encoding(const Tokenizer::Impl& impl, std::size_t max_tokens)
      : impl_(impl), max_tokens_(max_tokens) {}

  Result<std::vector<TokenId>> run(std::string_view text, std::string_view trust) {
    std::vector<TokenSplit> splits;
    impl_.added.split(text, trust, /*normalized=*/false, splits);
    for (const TokenSplit& s : splits) {
      if (s.token) {
        FLOTILLA_TRY_STATUS(add(s.token->id));
      } else {
        FLOTILLA_TRY_STATUS(add_text(text.substr(s.begin, s.end - s.begin),
                                     trust.empty() ? trust : trust.substr(s.begin, s.end - s.begin),
                                     s.begin == 0));
      }
    }
    return std::move(ids_);
  }

 private:
  Status add(TokenId id) {
    ids_.push_back(id);
    if (max_tokens_ > 0 && ids_.size() > max_tokens_) {
      return Error{ErrorCode::kContextLength,
                   "the text has more than " + std::to_string(max_tokens_) + " tokens"};
    }
    return ok_status();
  }

  Status add_text(std::string_view text, std::string_view trust, bool at_start) {
    NormalizedText normalized;
    if (!impl_.normalizer.is_identity()) {
      normalized.text = text;
      normalized.trust = trust;
      FLOTILLA_TRY_STATUS(impl_.normalizer.run(normalized, budget_));
      text = normalized.text;
      trust = normalized.trust;
      at_start = at_start && !normalized.lost_front;
    }
    std::vector<TokenSplit> splits;
    impl_.added.split(text, trust, /*normalized=*/true, splits);
    for (const TokenSplit& s : splits) {
      if (s.token) {
        FLOTILLA_TRY_STATUS(add(s.token->id));
      } else {
        FLOTILLA_TRY_STATUS(
            add_words({text.substr(s.begin, s.end - s.begin), at_start && s.begin == 0}));
      }
    }
    return ok_status();
  }

  Status add_words(const Piece& piece) {
    pieces_.pieces.assign(1, piece);
    pieces_.texts.clear();
    FLOTILLA_TRY_STATUS(impl_.pre_tokenizer.run(pieces_, budget_));
    for (const Piece& word : pieces_.pieces) {
      FLOTILLA_TRY_STATUS(impl_.bpe.encode(word.text, ids_, max_tokens_, bpe_));
    }
    return ok_status();
  }

  const Tokenizer::Impl& impl_;
  const std::size_t max_tokens_;
  std::vector<TokenId> ids_;
  MatchBudget budget_;
  PieceBuffer pieces_;
  BpeBuffer bpe_;
};

Result<std::vector<TokenId>> encode_joined(const Tokenizer::Impl& impl, std::string_view text,
                                           std::string_view trust, const EncodeOptions& options) {
  if (!is_valid_utf8(text))
    return Error{ErrorCode::kInvalidArgument, "the text is not well-formed UTF-8"};
  FLOTILLA_TRY(std::vector<TokenId> ids, Encoding(impl, options.max_tokens).run(text, trust));
  ids = impl.post_processor.run(std::move(ids), options.add_special_tokens);
  if (options.max_tokens > 0 && ids.size() > options.max_tokens) {
    return Error{ErrorCode::kContextLength, "the text has " + std::to_string(ids.size()) +
                                                " tokens; the limit is " +
                                                std::to_string(options.max_tokens)};
  }
  return ids;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& path) {
  FLOTILLA_TRY(const std::string text, read_file(path, kMaxTokenizerFileBytes));
  auto parsed = parse(text);
  if (!parsed.ok()) {
    Error error = std::move(parsed).error();
    error.message = "'" + path + "': " + error.message;
    return error;
  }
  return std::move(parsed).value();
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view text) {
  FLOTILLA_TRY(TokenizerFile file, read_tokenizer_file(text));
  const boost::json::value root = std::move(file.root);
  FLOTILLA_TRY(const auto version, json::get_string(root, "version"));
  if (version && *version != "1.0") {
    return Error{ErrorCode::kUnsupported, "tokenizer: version '" + *version + "' is not supported"};
  }
  const boost::json::value* model = json::find(root, "model");
  if (!model || !model->is_object()) {
    return Error{ErrorCode::kInvalidArgument, "tokenizer: 'model' must be an object"};
  }
  FLOTILLA_TRY_STATUS(check_model_type(*model));
  auto impl = std::make_unique<Impl>();
  FLOTILLA_TRY(impl->normalizer, Normalizer::parse(json::find(root, "normalizer")));
  FLOTILLA_TRY(impl->pre_tokenizer, PreTokenizer::parse(json::find(root, "pre_tokenizer")));
  FLOTILLA_TRY(impl->post_processor, PostProcessor::parse(json::find(root, "post_processor")));
  FLOTILLA_TRY(impl->decoder, Decoder::parse(json::find(root, "decoder")));
  FLOTILLA_TRY(impl->added,
               AddedTokens::parse(json::find(root, "added_tokens"), file.vocab, impl->normalizer));
  const auto is_control = [&](TokenId id) {
    const AddedToken* token = impl->added.by_id(id);
    return token != nullptr && token->is_control;
  };
  FLOTILLA_TRY(impl->bpe, Bpe::build(std::move(file), *model, is_control,
                                     impl->pre_tokenizer.ends_in_byte_level()));
  return std::make_shared<const Tokenizer>(std::move(impl));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  return encode_joined(*impl_, text, {}, options);
}

Result<std::vector<TokenId>> Tokenizer::encode(std::span<const TextSpan> spans,
                                               const EncodeOptions& options) const {
  const JoinedSpans joined = join(spans);
  return encode_joined(*impl_, joined.text, joined.trust, options);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string text;
  Decoder::Stream stream(impl_->decoder, text);
  for (const TokenId id : ids) {
    if (const auto token = impl_->token_to_decode(id, skip_special_tokens)) stream.push(*token);
  }
  stream.finish();
  return text;
}

std::size_t Tokenizer::vocab_size() const {
  return std::max(impl_->bpe.vocab().id_limit(), impl_->added.id_limit());
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = impl_->added.by_content(token)) return added->id;
  return impl_->bpe.vocab().find(token);
}

std::optional<std::string_view> Tokenizer::id_to_token(TokenId id) const {
  if (const AddedToken* added = impl_->added.by_id(id)) return added->content;
  return impl_->bpe.vocab().token(id);
}

bool Tokenizer::is_special(TokenId id) const {
  const AddedToken* added = impl_->added.by_id(id);
  return added != nullptr && added->is_control;
}

std::string Tokenizer::token_bytes(TokenId id) const {
  if (const AddedToken* added = impl_->added.by_id(id)) return added->content;
  const auto token = impl_->bpe.vocab().token(id);
  return token ? impl_->decoder.middle_bytes(*token) : std::string{};
}

std::optional<std::string_view> Tokenizer::Impl::token_to_decode(TokenId id,
                                                                 bool skip_special_tokens) const {
  if (const AddedToken* token = added.by_id(id)) {
    // Skipping goes by the string: a control token that the normalizer changes is not recognised.
    // So the reference.
    if (skip_special_tokens && token->is_control && token->normalized_content == token->content)
      return std::nullopt;
    return token->normalized_content;
  }
  return bpe.vocab().token(id);
}

}  // namespace flotilla::tokenizer
