#include "flotilla/serving/responses_answer.h"

#include <utility>

#include "flotilla/serving/ids.h"

namespace flotilla::serving {

using Kind = api::AnswerBlock::Kind;

ResponsesAnswer::ResponsesAnswer(api::ResponsesHead head, bool stream, bool parallel_calls)
    : writer_(head), stream_(stream), blocks_(*this, parallel_calls, head.logprobs) {}

Status ResponsesAnswer::add(ChatEvent& event, std::string& out) {
  if (stream_) out_ = &out;
  const Status status = blocks_.add(event);
  out_ = nullptr;
  return status;
}

void ResponsesAnswer::start(std::string& out) {
  if (!std::exchange(started_, true)) writer_.append_start(out);
}

// The id of an item never equals that of its call.
void ResponsesAnswer::on_open(std::size_t index, api::AnswerBlock& block) {
  block.id = random_id(block.kind == Kind::kReasoning ? "rs_"
                       : block.kind == Kind::kText    ? "msg_"
                                                      : "fc_");
  if (out_ == nullptr) return;
  start(*out_);
  writer_.append_open(*out_, index, block);
}

void ResponsesAnswer::on_text(std::size_t index, const api::AnswerBlock& block,
                              std::string_view text, std::span<const api::TokenLogprob> logprobs) {
  if (out_ != nullptr) writer_.append_delta(*out_, index, block, text, logprobs);
}

void ResponsesAnswer::on_close(std::size_t index, const api::AnswerBlock& block) {
  if (out_ != nullptr) writer_.append_close(*out_, index, block);
}

void ResponsesAnswer::end(const api::Usage& usage, std::string& out) {
  const api::ResponsesStatus status =
      blocks_.was_cut() ? api::ResponsesStatus::kIncomplete : api::ResponsesStatus::kCompleted;
  if (!stream_) {
    out += api::render_responses(writer_.head(), status, blocks_.blocks(), &usage, nullptr);
    return;
  }
  start(out);
  writer_.append_end(out, status, blocks_.blocks(), usage);
}

void ResponsesAnswer::append_error(const Error& error, std::string& out) {
  start(out);
  writer_.append_error(out, blocks_.blocks(), error);
}

}  // namespace flotilla::serving
