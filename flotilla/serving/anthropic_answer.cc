#include "flotilla/serving/anthropic_answer.h"

#include <utility>

#include "flotilla/serving/ids.h"

namespace flotilla::serving {

AnthropicAnswer::AnthropicAnswer(api::AnthropicHead head, bool stream, bool parallel_calls,
                                 std::string request_id)
    : head_(std::move(head)),
      stream_(stream),
      request_id_(std::move(request_id)),
      blocks_(*this, parallel_calls, false) {}

Status AnthropicAnswer::add(ChatEvent& event, std::string& out) {
  if (event.prompt_tokens > 0) prompt_tokens_ = event.prompt_tokens;
  if (stream_) out_ = &out;
  const Status status = blocks_.add(event);
  out_ = nullptr;
  return status;
}

// Before the first block, or the end where there is none.
void AnthropicAnswer::start() {
  if (std::exchange(started_, true)) return;
  api::append_message_start(*out_, head_, prompt_tokens_);
}

void AnthropicAnswer::on_open(std::size_t index, api::AnswerBlock& block) {
  if (block.kind == api::AnswerBlock::Kind::kReasoning) block.id = random_id("sig_");
  if (out_ == nullptr) return;
  start();
  api::append_block_start(*out_, index, block);
}

void AnthropicAnswer::on_text(std::size_t index, const api::AnswerBlock& block,
                              std::string_view text, std::span<const api::TokenLogprob>) {
  if (out_ != nullptr) api::append_block_delta(*out_, index, block.kind, text);
}

void AnthropicAnswer::on_close(std::size_t index, const api::AnswerBlock& block) {
  if (out_ != nullptr) api::append_block_stop(*out_, index, block);
}

void AnthropicAnswer::end(const api::Usage& usage, std::string& out) {
  const api::AnthropicStop stop =
      api::anthropic_stop(blocks_.was_cut(), blocks_.has_calls(), blocks_.matched_stop());
  if (!stream_) {
    out += api::render_anthropic_message(head_, blocks_.blocks(), stop, usage);
    return;
  }
  prompt_tokens_ = usage.prompt_tokens;
  out_ = &out;
  start();
  out_ = nullptr;
  api::append_message_end(out, stop, usage);
}

void AnthropicAnswer::append_error(const Error& error, std::string& out) {
  api::append_anthropic_error(out, error, request_id_);
}

}  // namespace flotilla::serving
