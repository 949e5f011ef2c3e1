#include "flotilla/engine/text_assets.h"

#include <sys/stat.h>

#include <boost/json.hpp>

#include "flotilla/base/file.h"
#include "flotilla/chat/gemma4_parser.h"
#include "flotilla/chat/plain_parser.h"
#include "flotilla/engine/digest.h"
#include "flotilla/grammar/output_constraint.h"
#include "flotilla/json/json.h"

namespace flotilla::engine {
namespace bj = boost::json;
namespace {

constexpr std::size_t kMaxTemplateBytes = 4u << 20;

bool exists(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0;
}

// "<bos>", or the object that tokenizer_config.json writes for an added token.
std::string token_text(const bj::value& config, std::string_view key) {
  const bj::value* value = json::find(config, key);
  if (value == nullptr) return {};
  if (value->is_object()) value = json::find(*value, "content");
  if (value == nullptr || !value->is_string()) return {};
  return std::string(value->get_string());
}

// A template is one string, or a list of named ones of which "default" is meant.
std::string template_text(const bj::value& config) {
  const bj::value* value = json::find(config, "chat_template");
  if (value == nullptr) return {};
  if (value->is_string()) return std::string(value->get_string());
  if (value->is_array()) {
    for (const bj::value& item : value->get_array()) {
      const bj::value* name = json::find(item, "name");
      const bj::value* text = json::find(item, "template");
      if (name != nullptr && text != nullptr && name->is_string() && text->is_string() &&
          name->get_string() == "default") {
        return std::string(text->get_string());
      }
    }
  }
  return {};
}

struct FoundTemplate {
  std::string text;
  std::string source;
};

Result<FoundTemplate> find_template(const std::string& folder, const bj::value& tokenizer_config,
                                    const tokenizer::Tokenizer& vocabulary) {
  const std::string file = folder + "/chat_template.jinja";
  if (exists(file)) {
    FLOTILLA_TRY(std::string text, read_file(file, kMaxTemplateBytes));
    return FoundTemplate{std::move(text), "chat_template.jinja"};
  }
  if (std::string text = template_text(tokenizer_config); !text.empty()) {
    return FoundTemplate{std::move(text), "tokenizer_config.json"};
  }
  if (exists(folder + "/chat_template.json")) {
    FLOTILLA_TRY(const bj::value other, json::parse_file(folder + "/chat_template.json"));
    if (std::string text = template_text(other); !text.empty()) {
      return FoundTemplate{std::move(text), "chat_template.json"};
    }
  }
  if (vocabulary.token_to_id("<|im_start|>") && vocabulary.token_to_id("<|im_end|>")) {
    return FoundTemplate{std::string(chat::chatml_template()), "chatml"};
  }
  return FoundTemplate{std::string(chat::plain_template()), "plain"};
}

// Separates control tokens from text.
class VocabularyDecoder final : public TokenDecoder {
 public:
  explicit VocabularyDecoder(std::shared_ptr<const tokenizer::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)), detokenizer_(*tokenizer_, false) {}
  TokenText push(TokenId id) override {
    if (!tokenizer_->is_special(id)) return {detokenizer_.push(id), {}};
    // A character that a control token interrupts is never completed.
    return {detokenizer_.finish(), std::string(tokenizer_->id_to_token(id).value_or(""))};
  }
  std::string finish() override { return detokenizer_.finish(); }

 private:
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  tokenizer::Detokenizer detokenizer_;
};

Error context_error(std::string tokens, std::int64_t context_length, std::string field) {
  return Error{ErrorCode::kContextLength,
               "the prompt has " + std::move(tokens) +
                   " tokens; with room for one answer token that exceeds the context of " +
                   std::to_string(context_length),
               std::move(field)};
}

}  // namespace

Result<std::shared_ptr<const TextAssets>> TextAssets::load(const std::string& folder,
                                                           const bj::value& config) {
  auto assets = std::shared_ptr<TextAssets>(new TextAssets());
  FLOTILLA_TRY(assets->tokenizer_, tokenizer::Tokenizer::load(folder + "/tokenizer.json"));
  bj::value tokenizer_config;
  if (const std::string path = folder + "/tokenizer_config.json"; exists(path)) {
    FLOTILLA_TRY(tokenizer_config, json::parse_file(path));
  }
  FLOTILLA_TRY(FoundTemplate found, find_template(folder, tokenizer_config, *assets->tokenizer_));
  assets->template_source_ = found.source;
  assets->syntax_ = chat::detect_output_syntax(found.text);
  auto compiled = chat::ChatTemplate::compile(std::move(found.text));
  if (!compiled.ok()) {
    return Error{compiled.error().code,
                 folder + ", " + found.source + ": " + compiled.error().message};
  }
  assets->template_ = std::move(compiled).value();

  const tokenizer::Tokenizer& vocabulary = *assets->tokenizer_;
  assets->bos_token_ = token_text(tokenizer_config, "bos_token");
  assets->eos_token_ = token_text(tokenizer_config, "eos_token");
  const bj::value* type = json::find(config, "model_type");
  if (type != nullptr && type->is_string() && type->get_string().starts_with("gemma")) {
    // Without it Gemma degrades to repetition; its base repositories and mirrors differ in who adds
    // it.
    assets->leading_bos_ =
        vocabulary.token_to_id(assets->bos_token_.empty() ? "<bos>" : assets->bos_token_);
  }
  if (found.source == "chatml") {
    assets->extra_stop_ids_.push_back(*vocabulary.token_to_id("<|im_end|>"));
  }
  assets->add_special_tokens_ = found.source == "plain";
  assets->template_problem_ = assets->test_render();
  return std::shared_ptr<const TextAssets>(std::move(assets));
}

std::string TextAssets::test_render() const {
  ChatJob job;
  job.messages = bj::array{bj::object{{"role", "user"}, {"content", "Hello"}}};
  auto text = render(job);
  if (!text.ok()) return text.error().message;
  auto ids = encode(*text, false, 0);
  if (!ids.ok()) return ids.error().message;
  return ids->empty() ? "the template renders nothing" : "";
}

Result<SpanText> TextAssets::render(const ChatJob& job) const {
  if (job.is_completion || !job.raw_prompt.empty())
    return SpanText{{.text = job.raw_prompt, .trusted = true}};
  return job.continue_final_message ? render_unfinished(job) : render_messages(job, job.messages);
}

Result<SpanText> TextAssets::render_messages(const ChatJob& job, const bj::value& messages) const {
  chat::RenderInput input;
  input.messages = &messages;
  input.tools = job.tools.is_array() && !job.tools.get_array().empty() ? &job.tools : nullptr;
  input.variables = &job.template_variables;
  input.add_generation_prompt = job.add_generation_prompt;
  input.bos_token = bos_token_;
  input.eos_token = eos_token_;
  input.render_time = job.render_time;
  return template_->render(input);
}

// Only the template knows what follows the text of a message; a mark at the text's end shows where
// that begins.
Result<SpanText> TextAssets::render_unfinished(const ChatJob& job) const {
  constexpr std::string_view kMark =
      "\xEF\xA3\xBF"
      "continues here"
      "\xEF\xA3\xBF";
  const Error refusal{
      ErrorCode::kInvalidArgument,
      "the chat template of this model cannot end with the text of the last message", "messages"};
  bj::value messages = job.messages;
  bj::array* list = messages.if_array();
  bj::object* last = list == nullptr || list->empty() ? nullptr : list->back().if_object();
  bj::value* content = last == nullptr ? nullptr : last->if_contains("content");
  if (content != nullptr && content->is_array() && !content->get_array().empty()) {
    bj::object* part = content->get_array().back().if_object();
    content = part == nullptr ? nullptr : part->if_contains("text");
  }
  if (content == nullptr || !content->is_string()) return refusal;
  content->get_string().append(kMark);
  FLOTILLA_TRY(SpanText text, render_messages(job, messages));
  while (!text.empty()) {
    const std::size_t at = text.back().text.rfind(kMark);
    if (at != std::string::npos) {
      text.back().text.resize(at);
      return text;
    }
    text.pop_back();
  }
  return refusal;
}

Result<std::vector<TokenId>> TextAssets::encode(const SpanText& text, bool is_completion,
                                                std::size_t max_tokens) const {
  // A template writes what begins a text; whoever gives a bare prompt leaves that to the tokenizer.
  FLOTILLA_TRY(auto ids,
               tokenizer_->encode(text, {.add_special_tokens = add_special_tokens_ || is_completion,
                                         .max_tokens = max_tokens}));
  if (leading_bos_ && (ids.empty() || ids.front() != *leading_bos_)) {
    ids.insert(ids.begin(), *leading_bos_);
  }
  return ids;
}

Result<std::vector<TokenId>> TextAssets::prompt_ids(const ChatJob& job, const SpanText& text,
                                                    std::size_t max_tokens) const {
  if (job.prompt_ids.empty()) return encode(text, job.is_completion, max_tokens);
  const auto size = static_cast<TokenId>(vocab_size());
  for (const TokenId id : job.prompt_ids) {
    if (id >= 0 && id < size) continue;
    return Error{ErrorCode::kInvalidArgument,
                 "'prompt' has the token " + std::to_string(id) + "; the vocabulary has " +
                     std::to_string(size),
                 "prompt"};
  }
  return job.prompt_ids;
}

Result<std::shared_ptr<const PreparedJob>> TextAssets::prepare(ChatJob job,
                                                               std::int64_t context_length) const {
  FLOTILLA_TRY(const SpanText text, render(job));
  // Far beyond the context the exact count is not worth the work.
  const std::size_t limit = static_cast<std::size_t>(context_length) * 4 + 65536;
  const std::string field = job.is_completion ? "prompt" : "messages";
  auto ids = prompt_ids(job, text, limit);
  if (!ids.ok()) {
    if (ids.error().code != ErrorCode::kContextLength) return std::move(ids).error();
    return context_error("more than " + std::to_string(limit), context_length, field);
  }
  if (static_cast<std::int64_t>(ids->size()) >= context_length && !job.count_only) {
    return context_error(std::to_string(ids->size()), context_length, field);
  }
  if (ids->empty()) return Error{ErrorCode::kInvalidArgument, "the prompt is empty", field};

  auto prepared = std::make_shared<PreparedJob>();
  for (const TextSpan& span : text) {
    prepared->prompt_text += span.text;
    // Text of users and tools must not decide in which state the parser starts.
    if (span.trusted) {
      prepared->prompt_tail += span.text;
    } else {
      prepared->prompt_tail.clear();
    }
  }
  FLOTILLA_TRY(prepared->constraint, plan_constraint(job, prepared->prompt_tail));
  prepared->prompt_digest = digest_of_ids(*ids);
  prepared->prompt_ids = std::move(ids).value();
  prepared->job = std::move(job);
  return std::shared_ptr<const PreparedJob>(std::move(prepared));
}

Result<std::shared_ptr<const grammar::ConstraintPlan>> TextAssets::plan_constraint(
    const ChatJob& job, std::string_view prompt_tail) const {
  std::shared_ptr<const grammar::ConstraintPlan> none;
  if (job.constraint.is_none()) return none;
  const bool is_gemma4 = syntax_ == chat::OutputSyntax::kGemma4;
  std::call_once(constrained_once_, [&] {
    auto vocabulary = grammar::Vocabulary::from(*tokenizer_);
    std::optional<grammar::CallSyntax> calls;
    if (is_gemma4) {
      const auto open = vocabulary->control_token("<|tool_call>");
      const auto close = vocabulary->control_token("<tool_call|>");
      const auto quote = vocabulary->control_token("<|\"|>");
      if (open && close && quote) calls = grammar::CallSyntax{*open, *close, *quote};
    }
    grammars_ = std::make_unique<grammar::GrammarCache>(std::move(vocabulary), calls);
  });
  auto plan = std::make_shared<grammar::ConstraintPlan>();
  auto compiled = grammars_->get(job.constraint, job.tools);
  if (!compiled.ok()) {
    Error error = std::move(compiled).error();
    // A limit of constraints is not one of bodies.
    if (error.code == ErrorCode::kTooLarge) error.code = ErrorCode::kInvalidArgument;
    return error;
  }
  plan->grammar = std::move(compiled).value();
  const auto& vocabulary = plan->grammar->vocabulary();
  const auto open = vocabulary.control_token("<|channel>");
  const auto close = vocabulary.control_token("<channel|>");
  if (is_gemma4 && open && close) {
    plan->thought_open = *open;
    plan->thought_close = *close;
    const bj::value* thinking = job.template_variables.if_contains("enable_thinking");
    if (chat::ends_in_gemma4_thought(prompt_tail)) {
      plan->start = grammar::ConstraintPlan::Start::kThinking;
    } else if (thinking != nullptr && thinking->is_bool() && thinking->get_bool()) {
      plan->start = grammar::ConstraintPlan::Start::kMayThink;
    }
  }
  return std::shared_ptr<const grammar::ConstraintPlan>(std::move(plan));
}

std::unique_ptr<OutputPipeline> TextAssets::make_output(const PreparedJob& job) const {
  auto parser = job.job.is_completion ? chat::make_plain_parser()
                                      : chat::make_output_parser(syntax_, job.prompt_tail);
  return std::make_unique<OutputPipeline>(job.job, static_cast<std::int64_t>(job.prompt_ids.size()),
                                          std::move(parser),
                                          std::make_unique<VocabularyDecoder>(tokenizer_));
}

}  // namespace flotilla::engine
