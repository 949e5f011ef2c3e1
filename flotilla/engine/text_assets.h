// The text side of a model folder: tokenizer, chat template, control tokens, output syntax.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "flotilla/base/result.h"
#include "flotilla/base/text_span.h"
#include "flotilla/chat/chat_template.h"
#include "flotilla/chat/output_parser.h"
#include "flotilla/engine/engine_core.h"
#include "flotilla/engine/text_engine.h"
#include "flotilla/grammar/compiler.h"
#include "flotilla/tokenizer/tokenizer.h"

namespace flotilla::engine {

// Immutable after load: safe from any thread.
class TextAssets final : public OutputFactory {
 public:
  // Template: chat_template.jinja, else "chat_template" of tokenizer_config.json or
  // chat_template.json, else ChatML where the vocabulary has its markers, else plain role prefixes.
  // It is rendered once for a test; what it complained about is kept in template_problem().
  static Result<std::shared_ptr<const TextAssets>> load(const std::string& folder,
                                                        const boost::json::value& config);

  // The prompt of a job, rendered and tokenised. kContextLength, with both numbers, when it leaves
  // no room for one token. A constraint is compiled here, on the caller's thread; what is wrong
  // with it is refused by the name of its place.
  Result<std::shared_ptr<const PreparedJob>> prepare(ChatJob job,
                                                     std::int64_t context_length) const;

  std::unique_ptr<OutputPipeline> make_output(const PreparedJob& job) const override;
  std::string token_bytes(TokenId id) const override { return tokenizer_->token_bytes(id); }
  std::string decode(std::span<const TokenId> ids) const { return tokenizer_->decode(ids, false); }

  const std::string& template_source() const { return template_source_; }
  const std::string& template_problem() const { return template_problem_; }
  // End tokens that the template implies beyond those of the configuration.
  const std::vector<TokenId>& extra_stop_ids() const { return extra_stop_ids_; }
  std::size_t vocab_size() const { return tokenizer_->vocab_size(); }

 private:
  TextAssets() = default;
  Result<SpanText> render(const ChatJob& job) const;
  Result<SpanText> render_messages(const ChatJob& job, const boost::json::value& messages) const;
  Result<SpanText> render_unfinished(const ChatJob& job) const;
  Result<std::vector<TokenId>> encode(const SpanText& text, bool is_completion,
                                      std::size_t max_tokens) const;
  Result<std::vector<TokenId>> prompt_ids(const ChatJob& job, const SpanText& text,
                                          std::size_t max_tokens) const;
  std::string test_render() const;
  Result<std::shared_ptr<const grammar::ConstraintPlan>> plan_constraint(
      const ChatJob& job, std::string_view prompt_tail) const;

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::shared_ptr<const chat::ChatTemplate> template_;
  std::string template_source_, template_problem_;
  std::string bos_token_, eos_token_;
  std::optional<TokenId> leading_bos_;  // every prompt begins with it, exactly once
  bool add_special_tokens_ = false;     // no template of its own: the tokenizer frames the text
  chat::OutputSyntax syntax_ = chat::OutputSyntax::kPlain;
  std::vector<TokenId> extra_stop_ids_;
  mutable std::once_flag constrained_once_;
  // Made when the first constraint comes: a large vocabulary takes a quarter of a second.
  mutable std::unique_ptr<grammar::GrammarCache> grammars_;
};

}  // namespace flotilla::engine
